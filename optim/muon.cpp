// Muon on matrices, and AdamW on the rest: formulas at keel/kernels/rules/muon.h.

#include <algorithm>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/newton_schulz.h"
#include "keel/optim/update_args.h"

namespace keel {
namespace {

class Muon final : public Optimizer {
 public:
  Muon(std::string_view name, const ElementwiseOptions& options)
      : name_(name), options_(options), before_(options), adamw_(options) {
    check_options(name, options);
    for (const UpdateSettings& variant : options.variants)
      KEEL_CHECK(std::get<MuonSettings>(variant).products == settings({}).products &&
                     std::get<MuonSettings>(variant).newton_schulz_steps == settings({}).newton_schulz_steps,
                 name, ": all groups have the same products and newton_schulz_steps");
    before_.stochastic_rounding = false;
    for_each_settings(before_, [](UpdateSettings& each) { std::get<MuonSettings>(each).before = true; });
    for_each_settings(adamw_, [](UpdateSettings& each) { each = std::get<MuonSettings>(each).adamw(); });
    check_options(name, adamw_);
  }
  std::string_view name() const override { return name_; }
  OptimizerRequirements requirements() const override {
    return {.one_by_one = true, .master = !options_.stochastic_rounding, .matrices = true};
  }
  std::vector<std::string_view> state_names() const override { return {}; }
  std::vector<StateKind> parameter_state(const Dims& shape, const ParameterGroup& group) const override {
    if (!matrices(shape, group).empty()) return {{"momentum"}};
    return {{"m"}, {"v"}};
  }

  std::vector<std::int64_t> matrices(const Dims& shape, const ParameterGroup& group) const override {
    const MuonMatrices which = settings(group).matrices;
    if (shape.size() != 2 || which == MuonMatrices::none) return {};
    if (which == MuonMatrices::hidden || !group.matrices.empty()) return group.matrices;
    return {shape[0]};
  }
  DType matrix_dtype(DType wide) const override {
    return wide == DType::f32 && settings({}).products == MuonProducts::bf16 ? DType::bf16 : wide;
  }

  void prepare(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      if (matrices(range.shape, range.group).empty()) continue;
      // As of a parameter in the gradient's dtype: where that is a narrow one, the wide numbers are its master.
      ParameterRange momentum = range;
      const bool is_narrow = range.gradient.dtype() != range.matrix.dtype();
      momentum.parameter =
          is_narrow ? empty(range.matrix.context(), range.matrix.shape(), range.gradient.dtype(), Purpose::workspace)
                    : range.matrix;
      momentum.master = is_narrow ? range.matrix : Tensor();
      kernels::update(update_args(before_, momentum, input));
    }
  }
  Tensor transform(const Tensor& matrix) const override {
    return kernels::newton_schulz(matrix, settings({}).newton_schulz_steps);
  }

  // A^2 and the two products with the matrix, whose smaller extent is A's.
  std::int64_t transform_operations(std::int64_t rows, std::int64_t columns) const override {
    const std::int64_t least = std::min(rows, columns);
    return settings({}).newton_schulz_steps * (2 * least * least * least + 4 * least * rows * columns);
  }

  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      if (!matrices(range.shape, range.group).empty()) {
        update_matrices(range, input);
        continue;
      }
      UpdateArgs args = update_args(adamw_, range, input);
      args.range.lr_factor *= settings(range.group).adamw_lr_factor;
      kernels::update(args);
    }
  }

 private:
  template <class F>
  static void for_each_settings(ElementwiseOptions& options, const F& f) {
    f(options.settings);
    for (UpdateSettings& variant : options.variants) f(variant);
  }
  const MuonSettings& settings(const ParameterGroup& group) const {
    return std::get<MuonSettings>(group.variant == 0 ? options_.settings : options_.variants.at(group.variant - 1));
  }

  // Each part of a parameter by the scale of its own shape.
  void update_matrices(const ParameterRange& range, const StepInput& input) const {
    const std::int64_t columns = range.shape[1], range_end = range.begin + range.parameter.numel();
    std::int64_t begin = 0;
    for (const std::int64_t rows : matrices(range.shape, range.group)) {
      const std::int64_t end = begin + rows * columns;
      const std::int64_t from = std::max(begin, range.begin) - range.begin, to = std::min(end, range_end) - range.begin;
      begin = end;
      if (from >= to) continue;
      ParameterRange part = range;
      part.parameter = range.parameter.slice(0, from, to);
      part.master = range.master.defined() ? range.master.slice(0, from, to) : Tensor();
      part.gradient = range.matrix.slice(0, from, to);
      part.state.clear();
      part.first += from;
      UpdateArgs args = update_args(options_, part, input);
      MuonSettings& own = std::get<MuonSettings>(args.settings);
      own.scale = own.scale_of(rows, columns);
      kernels::update(args);
    }
  }

  std::string_view name_;
  ElementwiseOptions options_, before_, adamw_;  // of updates, of momentum, and of what is no matrix
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(std::string_view name, const ElementwiseOptions& options) {
  return std::make_unique<Muon>(name, options);
}

}  // namespace keel
