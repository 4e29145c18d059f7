// The optimizer of ScheduleFreeSettings: masters hold the weights x, and the model computes with y.

#include <algorithm>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "keel/optim/update_args.h"

namespace keel {
namespace {

class ScheduleFree final : public Optimizer {
 public:
  ScheduleFree(std::string_view name, const ElementwiseOptions& options) : name_(name), options_(options) {
    check_options(name, options);
    KEEL_CHECK(!options.stochastic_rounding, name, ": keeps masters, and rounds no weights at random");
    KEEL_CHECK(options.variants.empty(), name, ": groups may differ in weight_decay and lr_factor alone");
  }
  std::string_view name() const override { return name_; }
  OptimizerRequirements requirements() const override { return {.averages = true}; }
  std::vector<std::string_view> state_names() const override { return settings().state_names(); }
  const SharedNumber* shared_number() const override { return &ScheduleFreeSettings::kShared; }

  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      KEEL_CHECK(!range.rows.defined(), name_, " takes dense gradients, and got rows");
      // A narrow copy of x beside the master is overwritten by y.
      ParameterRange weights = range;
      if (range.parameter.dtype() == range.master.dtype()) {
        weights.parameter = range.master;
        weights.master = Tensor();
      }
      kernels::update(update_args(options_, weights, input));
    }
    fill_values(ranges);
  }
  // A block at a time, so that the numbers in between stay near.
  void fill_values(std::span<const ParameterRange> ranges) const override {
    for (const ParameterRange& range : ranges)
      for (std::int64_t begin = 0; begin < range.master.numel(); begin += kBlock) {
        const std::int64_t end = std::min(range.master.numel(), begin + kBlock);
        const Tensor y = kernels::unary<MulScalar>(range.state[0].slice(0, begin, end), 1 - settings().beta1);
        kernels::accumulate(y, range.master.slice(0, begin, end));
        kernels::copy_into(range.parameter.slice(0, begin, end), y);
      }
  }
  void advance(const StepInput& input) const override {
    kernels::advance_shared({.shared = input.shared, .step = input.step, .settings = options_.settings});
  }

 private:
  static constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  const ScheduleFreeSettings& settings() const { return std::get<ScheduleFreeSettings>(options_.settings); }

  std::string_view name_;
  ElementwiseOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_schedule_free(std::string_view name, const ElementwiseOptions& options) {
  return std::make_unique<ScheduleFree>(name, options);
}

}  // namespace keel
