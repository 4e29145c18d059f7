// Adafactor on whole parameters: matrices keep means by row and column, vectors a mean for each element.

#include <algorithm>
#include <vector>

#include "keel/kernels/combine.h"
#include "keel/kernels/factors.h"
#include "keel/optim/update_args.h"

namespace keel {
namespace {

class Adafactor final : public Optimizer {
 public:
  Adafactor(std::string_view name, const ElementwiseOptions& options)
      : name_(name), options_(options), settings_(std::get<AdafactorSettings>(options.settings)) {
    check_options(name, options);
    KEEL_CHECK(options.variants.empty(), name, ": groups may differ in weight_decay and lr_factor alone");
    given_ = options;
    std::get<AdafactorSettings>(given_.settings).given_root = true;
  }
  std::string_view name() const override { return name_; }
  // Two passes: first sums over rows and columns, and then the norms of weights and update.
  OptimizerRequirements requirements() const override {
    return {.one_by_one = true, .master = !options_.stochastic_rounding, .passes = 2};
  }
  std::vector<std::string_view> state_names() const override {
    if (settings_.beta1 == 0) return {};
    return {"m"};
  }
  std::vector<StateKind> parameter_state(const Dims& shape, const ParameterGroup&) const override {
    if (!is_factored(shape)) return {{"v", {}}};
    const Factored factored = Factored::of(shape);
    return {{"v_rows", Dims{factored.batch, factored.rows}}, {"v_columns", Dims{factored.batch, factored.columns}}};
  }

  std::int64_t sum_count(int pass, const Dims& shape) const override {
    if (pass == 0) return is_factored(shape) ? Factored::of(shape).count() : 0;
    return AdafactorSettings::kNorms;
  }
  void measure(int pass, std::span<const ParameterRange> parts, const StepInput& input) const override {
    for (const ParameterRange& part : parts) {
      if (pass == 1) measure_norms(part, input);
      else if (is_factored(part.shape))
        kernels::sum_factors(part.gradient, part.begin, Factored::of(part.shape), input.step, part.measured[0]);
    }
  }
  void settle(int pass, std::span<const ParameterRange> ranges, const StepInput& input) const override {
    if (pass != 0) return;
    for (const ParameterRange& range : ranges) {
      if (!is_factored(range.shape)) continue;
      const std::size_t rows = state_names().size();
      kernels::settle_factors({.shape = Factored::of(range.shape),
                               .rows = range.state[rows].flatten(),
                               .columns = range.state[rows + 1].flatten(),
                               .sums = range.sums[0],
                               .step = input.step,
                               .settings = settings_});
    }
  }
  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges)
      for_each_block(range, input, [&](const UpdateArgs& args, std::int64_t) { kernels::update(args); });
  }

 private:
  static bool is_factored(const Dims& shape) { return shape.size() >= 2; }

  // Elements whose root of v is there at one time, of a matrix.
  static constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  static std::int64_t blocks_of(const ParameterRange& range) {
    return is_factored(range.shape) ? (range.parameter.numel() + kBlock - 1) / kBlock : 1;
  }

  // Calls run(args, number) for each block of a matrix, with the root of v as it follows from the factors; for a vector
  // as a whole.
  template <class Run>
  void for_each_block(const ParameterRange& range, const StepInput& input, const Run& run) const {
    const bool keeps_mean = settings_.beta1 != 0;
    if (!is_factored(range.shape)) {
      ParameterRange vector = range;
      if (keeps_mean) std::swap(vector.state[0], vector.state[1]);
      return run(update_args(options_, vector, input), 0);
    }
    const Factored shape = Factored::of(range.shape);
    for (std::int64_t block = 0; block < blocks_of(range); ++block) {
      const std::int64_t begin = block * kBlock, end = std::min(range.parameter.numel(), begin + kBlock);
      const auto cut = [&](const Tensor& flat) { return flat.defined() ? flat.slice(0, begin, end) : Tensor(); };
      const DType wide = range.parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
      const Tensor root = empty(range.parameter.context(), {end - begin}, wide, Purpose::workspace);
      kernels::expand_factors(range.sums[0], shape, range.begin + begin, root);
      ParameterRange part = range;
      part.parameter = cut(range.parameter);
      part.master = cut(range.master);
      part.gradient = cut(range.gradient);
      part.state = {root};
      if (keeps_mean) part.state.push_back(cut(range.state[0]));
      part.first = range.first + begin;
      run(update_args(given_, part, input), block);
    }
  }

  void measure_norms(const ParameterRange& part, const StepInput& input) const {
    const std::int64_t blocks = blocks_of(part);
    const Tensor squares = blocks == 1 ? part.measured[1].view({1, -1})
                                       : empty(part.parameter.context(), {blocks, AdafactorSettings::kNorms},
                                               DType::f64, Purpose::workspace);
    for_each_block(part, input, [&](const UpdateArgs& args, std::int64_t block) {
      kernels::measure_norms(args, squares.select(0, block));
    });
    if (blocks == 1) return;
    std::vector<Tensor> terms;
    for (std::int64_t block = 0; block < blocks; ++block) terms.push_back(squares.select(0, block));
    kernels::combine({.terms = terms, .out = part.measured[1]});
  }

  std::string_view name_;
  ElementwiseOptions options_, given_;  // of vectors; of matrices, whose root of v is given
  AdafactorSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(std::string_view name, const ElementwiseOptions& options) {
  return std::make_unique<Adafactor>(name, options);
}

}  // namespace keel
