#include "keel/dist/strategies/fast_components.h"

#include <cmath>
#include <numbers>

#include "keel/dist/strategies/chunk_payloads.h"
#include "keel/dist/strategies/error_feedback.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"

namespace keel {
namespace {

// The orthonormal DCT-II: row k is cos(pi (2 i + 1) k / (2 n)) sqrt(2 / n), and sqrt(1 / n) for k = 0.
std::vector<float> cosines(std::int64_t n) {
  std::vector<float> rows;
  const auto length = static_cast<double>(n);
  for (std::int64_t k = 0; k < n; ++k)
    for (std::int64_t i = 0; i < n; ++i)
      rows.push_back(
          static_cast<float>(std::sqrt((k == 0 ? 1 : 2) / length) *
                             std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * k) / (2 * length))));
  return rows;
}

class FastComponents : public ChunkStrategy {
 public:
  explicit FastComponents(const FastComponentsOptions& options)
      : ChunkStrategy(options.chunk, {.kind = Codec::Kind::top_k, .number = options.keep}, /*every=*/1,
                      {.kept = 1, .of_group = 1, .held = 1}),
        options_(options) {
    KEEL_CHECK(options.chunk >= 1 && options.chunk <= 4096, "a chunk has 1 to 4096 numbers, got ", options.chunk);
    KEEL_CHECK(options.keep >= 1 && options.keep <= options.chunk, "1 to ", options.chunk,
               " components of a chunk are sent, got ", options.keep);
    KEEL_CHECK(options.decay >= 0 && options.decay <= 1, "the momentum's decay is from 0 to 1, got ", options.decay);
  }

  std::string describe() const override {
    return concat("fast components, decay ", options_.decay, ", ", options_.keep, " of ", options_.chunk);
  }

  void begin(const StrategySite& site) override {
    ChunkStrategy::begin(site);
    for (const StrategyUnit& unit : site.units)
      momenta_.emplace_back(unit.gradient.context(), unit.gradient.numel(), Purpose::optimizer);
    basis_ = from_values(site.context, cosines(options_.chunk), {options_.chunk, options_.chunk}, Purpose::workspace);
  }

  void before_step(const std::function<double()>& loss_scale) override {
    const double scale = loss_scale();
    std::vector<ChunkPayloads> payloads;
    for (std::size_t i = 0; i < momenta_.size(); ++i) payloads.push_back(take_out(site_->units[i], momenta_[i], scale));
    exchange(payloads);
    for (std::size_t i = 0; i < momenta_.size(); ++i)
      kernels::copy_into(site_->units[i].gradient, numbers_of(payloads[i].mean(), site_->units[i]));
  }
  bool after_step(const std::function<bool()>& taken) override {
    ++steps_;
    const bool keeps = taken();
    for (ErrorFeedback& momentum : momenta_) momentum.end_step(keeps);
    return false;
  }

  void restart() override {
    ChunkStrategy::restart();
    for (const ErrorFeedback& momentum : momenta_) kernels::fill(momentum.residual(), 0);
  }

  std::vector<StrategyState> state(std::size_t unit) override {
    return {{"momentum", momenta_[unit].residual(), /*of_group=*/true}};
  }

 private:
  // The numbers whose components these are.
  Tensor numbers_of(const Tensor& components, const StrategyUnit& unit) const {
    const Tensor chunks = kernels::matmul(components, basis_, {.same_bits = true});
    return chunks_.join(chunks, unit.gradient.numel(), unit.shards);
  }

  // What the unit's momentum is to send, which leaves it.
  ChunkPayloads take_out(const StrategyUnit& unit, ErrorFeedback& kept, double scale) const {
    const Tensor& momentum = kept.add(unit.gradient, scale, options_.decay);
    const Tensor components =
        kernels::matmul(chunks_.split(momentum, unit.shards), basis_.transpose(0, 1), {.same_bits = true});
    ChunkPayloads payloads(components, codec_);
    const Tensor sent = numbers_of(payloads.sent(), unit);
    kernels::scale(sent, -1);
    kernels::accumulate(momentum, sent);
    kept.settle();
    return payloads;
  }

  FastComponentsOptions options_;
  std::vector<ErrorFeedback> momenta_;
  Tensor basis_;
};

}  // namespace

std::unique_ptr<CommunicationStrategy> make_fast_components(const FastComponentsOptions& options) {
  return std::make_unique<FastComponents>(options);
}

}  // namespace keel
