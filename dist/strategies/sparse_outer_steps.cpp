#include "keel/dist/strategies/sparse_outer_steps.h"

#include <cmath>

#include "keel/dist/strategies/chunk_payloads.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

class SparseOuterSteps : public ChunkStrategy {
 public:
  explicit SparseOuterSteps(const SparseOuterStepOptions& options)
      : ChunkStrategy(
            options.chunk,
            {.kind = options.bits == 2 ? Codec::Kind::top_k_2bit : Codec::Kind::top_k, .number = options.keep},
            options.every, {.kept = 2, .of_group = 1, .by_weights = true, .moved = 1}),
        options_(options) {
    KEEL_CHECK(options.every >= 1, "outer steps come every 1 step or more, got ", options.every);
    KEEL_CHECK(std::isfinite(options.rate) && options.rate > 0, "the outer rate is above 0, got ", options.rate);
    KEEL_CHECK(options.decay >= 0 && options.decay <= 1, "the error's decay is from 0 to 1, got ", options.decay);
    KEEL_CHECK(options.chunk >= 1 && options.chunk <= 1 << 20, "a chunk has 1 to 1048576 numbers, got ", options.chunk);
    KEEL_CHECK(options.keep >= 1 && options.keep <= options.chunk, "1 to ", options.chunk,
               " numbers of a chunk are sent, got ", options.keep);
    KEEL_CHECK(options.bits == 2 || options.bits == 32, "numbers are sent in 2 or 32 bits, got ", options.bits);
  }

  std::string describe() const override {
    return concat("sparse outer steps every ", options_.every, ", rate ", options_.rate, ", decay ", options_.decay,
                  ", ", options_.keep, " of ", options_.chunk, " in ", options_.bits, " bits");
  }

  void begin(const StrategySite& site) override {
    ChunkStrategy::begin(site);
    for (const StrategyUnit& unit : site.units)
      units_.push_back({kept_copy(unit.weights),
                        zeros(unit.weights.context(), unit.weights.shape(), DType::f32, Purpose::optimizer)});
  }

  bool after_step(const std::function<bool()>& /*taken*/) override {
    if (++steps_ % options_.every != 0) return false;
    std::vector<ChunkPayloads> payloads;
    for (std::size_t i = 0; i < units_.size(); ++i) payloads.push_back(take_out(i));
    exchange(payloads);
    for (std::size_t i = 0; i < units_.size(); ++i) step(i, payloads[i].mean());
    return true;
  }

  void restart() override {
    ChunkStrategy::restart();
    for (std::size_t i = 0; i < units_.size(); ++i) {
      kernels::copy_into(units_[i].anchor, site_->units[i].weights);
      kernels::fill(units_[i].error, 0);
    }
  }

  std::vector<StrategyState> state(std::size_t unit) override {
    return {{"anchor", units_[unit].anchor}, {"error", units_[unit].error, /*of_group=*/true}};
  }

 private:
  struct Unit {
    Tensor anchor;  // w0
    Tensor error;   // e
  };

  // What the unit's error is to send, which leaves it.
  ChunkPayloads take_out(std::size_t i) {
    const auto& [anchor, error] = units_[i];
    const StrategyUnit& unit = site_->units[i];
    const Tensor difference = scaled_copy(unit.weights, -1);
    kernels::accumulate(difference, anchor);
    kernels::scale(error, options_.decay);
    kernels::accumulate(error, difference);
    const Tensor chunks = chunks_.split(kernels::to(error, site_->context, Purpose::bucket), unit.shards);
    ChunkPayloads payloads(chunks, codec_);
    put(chunks, unit.shards, error);
    return payloads;
  }
  void step(std::size_t i, const Tensor& mean) {
    const Tensor& anchor = units_[i].anchor;
    const StrategyUnit& unit = site_->units[i];
    const Tensor move = empty(anchor.context(), anchor.shape(), DType::f32, Purpose::bucket);
    put(mean, unit.shards, move);
    kernels::scale(move, -options_.rate);
    kernels::accumulate(anchor, move);
    kernels::copy_into(unit.weights, anchor);
  }
  void put(const Tensor& chunks, int shards, const Tensor& to) const {
    kernels::copy_across(to, chunks_.join(chunks, to.numel(), shards), Purpose::bucket);
  }

  SparseOuterStepOptions options_;
  std::vector<Unit> units_;
};

}  // namespace

std::unique_ptr<CommunicationStrategy> make_sparse_outer_steps(const SparseOuterStepOptions& options) {
  return std::make_unique<SparseOuterSteps>(options);
}

}  // namespace keel
