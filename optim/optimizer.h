#pragma once
// Optimizers: rules that turn gradients into new weights, on flat ranges of numbers.
//
// A rule owns no memory: whoever cuts the parameters into ranges (a whole model, or one rank's shard of it)
// also keeps the state, so the same rule serves every way of sharding.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "keel/kernels/shared_number.h"
#include "keel/optim/objective.h"
#include "keel/runtime/tensor.h"

namespace keel {

// How the parameters of a group differ from the rest.
struct ParameterGroup {
  double lr_factor = 1;
  double decay_factor = 1;
  std::optional<double> weight_decay = {};  // instead of the optimizer's own
  std::size_t variant = 0;                  // which settings hold: see keel/optim/elementwise.h
  bool full_state = false;                  // no state in 8 bits
  // The rows of the hidden matrices that a parameter consists of (keel/nn/hidden_matrices.h); none: it is no such one.
  // An engine fills them in.
  std::vector<std::int64_t> matrices = {};
  bool operator==(const ParameterGroup&) const = default;
};

// Chooses the group of a parameter by its name and shape.
using GroupRule = std::function<ParameterGroup(std::string_view name, const Dims& shape)>;
// Weight decay on matrices alone: biases and norms (rank 0 and 1) have none.
ParameterGroup decay_matrices_only(std::string_view name, const Dims& shape);

// Flat dense tensors of as many elements each: some parameters of one group, or a part of them.
struct ParameterRange {
  Tensor parameter;           // the model's copy; written
  Tensor master;              // f32 (f64 for f64) weights where the optimizer requires it, else undefined; written
  Tensor gradient;            // f32 or the parameter's dtype
  std::vector<Tensor> state;  // one for each of the optimizer's state_names() and parameter_state(); written
  ParameterGroup group;
  std::int64_t first = 0;  // where the range begins among all numbers that are trained
  // With optimizers that take rows, a range is whole rows of one table, and the gradient, (rows, width), holds the rows
  // of the range that this lists: i64, ascending, each once, in the processor's memory.
  Tensor rows = {};
  // With optimizers that treat parameters one by one, a range belongs to one parameter:
  Dims shape = {};                    // of the whole parameter
  std::int64_t begin = 0;             // where the range begins in it
  std::vector<Tensor> measured = {};  // f64, by pass: what measure() writes for this part
  std::vector<Tensor> sums = {};      // f64, by pass: the sums over the whole parameter, from all ranks
  // Where the optimizer takes the parameter as matrices: f32 (f64 for f64), as many elements. prepare() writes it, and
  // update() reads what transform() has made of whole matrices.
  Tensor matrix = {};
};

// A state that an optimizer keeps for one parameter, beside the states that it keeps for each element.
struct StateKind {
  std::string_view name;
  std::optional<Dims> shape = {};  // kept whole wherever a part of the parameter is; none: a number for each block
  std::int64_t block = 1;          // elements, counted from the beginning of the parameter
  bool codes = false;              // u8; otherwise f32 (f64 for f64)

  // Whether it has a number for each element.
  bool by_element() const { return !shape && block == 1; }
  // How many numbers a part of so many elements has of this state, and their bytes; `wide`: bytes of one that is no
  // code.
  std::int64_t count(std::int64_t elements) const { return shape ? product(*shape) : (elements + block - 1) / block; }
  std::int64_t bytes(std::int64_t elements, std::int64_t wide) const { return count(elements) * (codes ? 1 : wide); }
  DType dtype(DType wide) const { return codes ? DType::u8 : wide; }
};

// What all ranges of a step share.
struct StepInput {
  Tensor step;  // a state that decide_step() has written: learning rate, count of steps, factor on gradients, or skip
  Tensor shared =
      {};  // f64 (1): the number that all elements share, where shared_number() names one; written by advance()
};

// Those of OptimizerRequirements that no option of an optimizer changes.
struct SettledRequirements {
  bool closure = false, one_vector = false, pure_gradient = false, host_memory = false, rows = false, averages = false;
  bool operator==(const SettledRequirements&) const = default;
};

// What an optimizer asks of whoever runs it.
struct OptimizerRequirements {
  // It evaluates the loss itself, several times in a step: minimise() takes the place of update() and all that goes
  // with it.
  bool closure = false;
  // All parameters are one vector to it: no groups, and no rates of their own.
  bool one_vector = false;
  // A gradient must be a function of the weights alone: not clipped, not compressed with error feedback, and in no step
  // that is skipped.
  bool pure_gradient = false;
  // It works in the processor's memory alone.
  bool host_memory = false;
  // It updates single rows of tables, whose gradients are kept as rows, and nothing else.
  bool rows = false;
  // A range belongs to one parameter alone.
  bool one_by_one = false;
  // Parameters that are narrower than f32 have master weights beside them.
  bool master = true;
  // It measures whole parameters before it updates, in so many passes. In each, every rank measures its parts; these
  // are added in the order of ranks before the next pass. Needs one_by_one.
  int passes = 0;
  // The weights are an average of those that it trains at, and masters in every dtype; the model computes with the
  // latter while it is trained: see Optimizer::fill_values().
  bool averages = false;
  // It transforms whole matrices before it updates: see Optimizer::matrices(). Needs one_by_one.
  bool matrices = false;
  // A range begins at a multiple of so many elements of its parameter; lay_out() takes it as `block`.
  std::int64_t block = 1;
  // Its update is a linear function of this step's gradient and those before: the mean of updates by several gradients
  // is the update by their mean.
  bool linear = false;
  bool operator==(const OptimizerRequirements&) const = default;
  // Whether prepare() and update() may be given any part of a range, one part after the other.
  bool takes_pieces() const { return !one_by_one || (passes == 0 && block == 1); }
  SettledRequirements settled() const { return {closure, one_vector, pure_gradient, host_memory, rows, averages}; }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  virtual OptimizerRequirements requirements() const { return {}; }
  // The names of the states, each a number for each element, in f32 (f64 for f64), and the value each begins with.
  virtual std::vector<std::string_view> state_names() const = 0;
  virtual double initial_state(std::size_t /*kind*/) const { return 0; }
  // A number, or several, that all elements share and that is carried from step to step; null: there is none.
  virtual const SharedNumber* shared_number() const { return nullptr; }
  // How many sums a pass takes over a parameter of that shape.
  virtual std::int64_t sum_count(int /*pass*/, const Dims& /*shape*/) const { return 0; }
  // Writes the sums of this pass over each part. A skipped step writes nothing.
  virtual void measure(int /*pass*/, std::span<const ParameterRange> /*parts*/, const StepInput& /*input*/) const {}
  // Called for all ranges once their `sums` of a pass hold the sums over whole parameters.
  virtual void settle(int /*pass*/, std::span<const ParameterRange> /*ranges*/, const StepInput& /*input*/) const {}
  // The rows of the matrices that it takes a parameter as, one below the other; none: each element is updated for
  // itself. Every rank prepares what it owns of them, one rank transforms a whole matrix, and every rank updates by its
  // part of that. Of such a parameter prepare() has gradient and states, and update() has `matrix`, weights and
  // masters: either leaves alone what the other has.
  virtual std::vector<std::int64_t> matrices(const Dims& /*shape*/, const ParameterGroup& /*group*/) const {
    return {};
  }
  // The dtype in which matrices travel and are transformed, where weights are f32, or f64 (`wide`).
  virtual DType matrix_dtype(DType wide) const { return wide; }
  // Writes `matrix` of ranges whose parameters are matrices. A skipped step writes nothing.
  virtual void prepare(std::span<const ParameterRange> /*ranges*/, const StepInput& /*input*/) const {}
  // Of a whole matrix (rows, columns) in matrix_dtype(): a dense one of its shape and dtype.
  virtual Tensor transform(const Tensor& matrix) const { return matrix; }
  // Operations of that, about.
  virtual std::int64_t transform_operations(std::int64_t /*rows*/, std::int64_t /*columns*/) const { return 0; }
  // Further states of a parameter of that shape and group, which begin as 0; only if it treats parameters one by one.
  virtual std::vector<StateKind> parameter_state(const Dims& /*shape*/, const ParameterGroup& /*group*/) const {
    return {};
  }
  virtual void update(std::span<const ParameterRange> ranges, const StepInput& input) const = 0;
  // Writes `parameter` from master and state, where the weights are averages: what the next gradient is taken at.
  // update() has done so.
  virtual void fill_values(std::span<const ParameterRange> /*ranges*/) const {}
  // One step of an optimizer that requires a closure. `state` has a vector shaped like the objective's weights for each
  // of state_names(); `shared` holds the shared numbers, f64, on the processor. Both are written. Throws the Errors of
  // the objective.
  virtual Minimised minimise(Objective& objective, std::span<const std::vector<Tensor>> state, const Tensor& shared,
                             double lr) const;
  // Makes the shared number that of the next step; called once after all updates. A skipped step leaves it as it is.
  virtual void advance(const StepInput& /*input*/) const {}
};

// Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; formula at keel/kernels/rules/adam.h.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool stochastic_rounding = false;  // as in keel/optim/elementwise.h
  std::uint64_t seed = 0;
};
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options = {});

// Stochastic gradient descent; with momentum, Polyak's or Nesterov's as Sutskever et al. 2013 state it.
struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2 penalty, part of the gradient
  bool nesterov = false;
};
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options = {});

}  // namespace keel
