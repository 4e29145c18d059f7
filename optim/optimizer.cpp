#include "keel/optim/optimizer.h"

#include "keel/kernels/update.h"

namespace keel {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}
  std::string_view name() const override { return "AdamW"; }
  std::vector<std::string_view> state_names() const override { return {"m", "v"}; }
  bool needs_master() const override { return !options_.stochastic_rounding; }

  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      kernels::adamw({.parameter = range.parameter,
                      .master = range.master,
                      .gradient = range.gradient,
                      .m = range.state[0],
                      .v = range.state[1],
                      .step = input.step,
                      .lr_factor = range.group.lr_factor,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .weight_decay = options_.weight_decay * range.group.decay_factor,
                      .stochastic_rounding = options_.stochastic_rounding,
                      .seed = options_.seed,
                      .first = range.first});
    }
  }

 private:
  AdamWOptions options_;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}
  std::string_view name() const override { return "SGD"; }
  std::vector<std::string_view> state_names() const override {
    if (options_.momentum == 0) return {};
    return {"momentum"};
  }

  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      kernels::sgd({.parameter = range.parameter,
                    .master = range.master,
                    .gradient = range.gradient,
                    .momentum_buffer = options_.momentum == 0 ? Tensor() : range.state[0],
                    .step = input.step,
                    .lr_factor = range.group.lr_factor,
                    .momentum = options_.momentum,
                    .dampening = options_.dampening,
                    .weight_decay = options_.weight_decay * range.group.decay_factor,
                    .nesterov = options_.nesterov});
    }
  }

 private:
  SgdOptions options_;
};

}  // namespace

ParameterGroup decay_matrices_only(std::string_view, const Dims& shape) {
  return {.lr_factor = 1, .decay_factor = shape.size() >= 2 ? 1.0 : 0.0};
}

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) { return std::make_unique<AdamW>(options); }
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) { return std::make_unique<Sgd>(options); }

}  // namespace keel
