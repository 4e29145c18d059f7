// Adam with the states of large parameters in 8 bits: Dettmers et al. 2022, "8-bit optimizers via block-wise
// quantization".

#include <vector>

#include "keel/kernels/dynamic_map.h"
#include "keel/optim/update_args.h"

namespace keel {
namespace {

class Adam8bit final : public Optimizer {
 public:
  Adam8bit(std::string_view name, const ElementwiseOptions& options) : name_(name), options_(options) {
    check_options(name, options);
  }
  std::string_view name() const override { return name_; }
  OptimizerRequirements requirements() const override {
    return {.one_by_one = true, .master = !options_.stochastic_rounding, .block = kStateBlock};
  }
  std::vector<std::string_view> state_names() const override { return {}; }
  std::vector<StateKind> parameter_state(const Dims& shape, const ParameterGroup& group) const override {
    if (!is_coded(shape, group)) return {{"m"}, {"v"}};
    return {{.name = "m_codes", .codes = true},
            {.name = "v_codes", .codes = true},
            {.name = "m_scales", .block = kStateBlock},
            {.name = "v_scales", .block = kStateBlock}};
  }
  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      UpdateArgs args = update_args(options_, range, input);
      if (is_coded(range.shape, range.group)) {
        args.scales = {args.state[2], args.state[3]};
        args.state = {args.state[0], args.state[1]};
      }
      kernels::update(args);
    }
  }

 private:
  bool is_coded(const Dims& shape, const ParameterGroup& group) const {
    const UpdateSettings& settings = group.variant == 0 ? options_.settings : options_.variants.at(group.variant - 1);
    const std::int64_t from = std::get<AdamSettings>(settings).min_8bit_size;
    return !group.full_state && from > 0 && product(shape) >= from;
  }

  std::string_view name_;
  ElementwiseOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam_8bit(std::string_view name, const ElementwiseOptions& options) {
  return std::make_unique<Adam8bit>(name, options);
}

}  // namespace keel
