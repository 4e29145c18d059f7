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

#include "keel/kernels/update.h"
#include "keel/optim/objective.h"
#include "keel/runtime/tensor.h"

namespace keel {

// How the parameters of a group differ from the rest.
struct ParameterGroup {
  double lr_factor = 1;
  double decay_factor = 1;
  std::optional<double> weight_decay = {};  // instead of the optimizer's own
  std::size_t variant = 0;                  // which settings hold: see ElementwiseOptions
  bool full_state = false;                  // no state in 8 bits
  bool operator==(const ParameterGroup&) const = default;
};

// Chooses the group of a parameter by its name and shape.
using GroupRule = std::function<ParameterGroup(std::string_view name, const Dims& shape)>;
// Weight decay on matrices alone: biases and norms (rank 0 and 1) have none.
ParameterGroup decay_matrices_only(std::string_view name, const Dims& shape);

// Flat dense tensors of as many elements each: some parameters of one group, or a part of them.
struct ParameterRange {
  Tensor parameter;           // the model's copy; written
  Tensor master;              // f32 weights where `parameter` is narrower and needs_master(), else undefined; written
  Tensor gradient;            // f32 or the parameter's dtype
  std::vector<Tensor> state;  // one for each of the optimizer's state_names() and parameter_state(); written
  ParameterGroup group;
  std::int64_t first = 0;  // where the range begins among all numbers that are trained
  // With optimizers that take rows, a range is whole rows of one table, and the gradient, (rows, width), is of these of
  // them: i64, ascending, each once, in the processor's memory.
  Tensor rows = {};
  // With optimizers that treat parameters one by one, a range is of one alone:
  Dims shape = {};                    // of all of it
  std::int64_t begin = 0;             // where the range begins in it
  std::vector<Tensor> measured = {};  // f64, by pass: what measure() writes of a part
  std::vector<Tensor> sums = {};      // f64, by pass: of the whole, from all ranks
};

// What an optimizer keeps of one parameter, beside what it keeps for each element of all.
struct StateKind {
  std::string_view name;
  std::optional<Dims> shape = {};  // kept whole wherever a part of the parameter is; none: a number for each block
  std::int64_t block = 1;          // elements, counted from the beginning of the parameter
  bool codes = false;              // u8; otherwise f32 (f64 for f64)

  // Of so many elements: what is kept, and its bytes where wide numbers have so many.
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

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  // What is kept for each element of a parameter, in f32 (f64 for f64), and what each kind is at the start.
  virtual std::vector<std::string_view> state_names() const = 0;
  virtual double initial_state(std::size_t /*kind*/) const { return 0; }
  // A number, or several, that all elements share and that the steps before have made; null: there is none.
  virtual const SharedNumber* shared_number() const { return nullptr; }
  // Whether parameters that are narrower than f32 have master weights beside them.
  virtual bool needs_master() const { return true; }
  // Whether it updates single rows of tables, whose gradients are kept as rows, and nothing else.
  virtual bool takes_rows() const { return false; }
  // An optimizer that needs to know whole parameters measures them before it updates, in so many passes. In each, every
  // rank measures its parts; these are added in the order of ranks before the next pass.
  virtual int passes() const { return 0; }
  // How many sums a pass takes over a parameter of that shape.
  virtual std::int64_t sum_count(int /*pass*/, const Dims& /*shape*/) const { return 0; }
  // Writes the sums of this pass over each part. A skipped step writes nothing.
  virtual void measure(int /*pass*/, std::span<const ParameterRange> /*parts*/, const StepInput& /*input*/) const {}
  // Of all ranges, once the sums of a pass are those of whole parameters.
  virtual void settle(int /*pass*/, std::span<const ParameterRange> /*ranges*/, const StepInput& /*input*/) const {}
  // Whether a range must be of one parameter alone.
  virtual bool one_by_one() const { return passes() > 0; }
  // What it keeps of a parameter of that shape and group besides, at first 0; if it treats them one by one.
  virtual std::vector<StateKind> parameter_state(const Dims& /*shape*/, const ParameterGroup& /*group*/) const {
    return {};
  }
  // A range begins at a multiple of so many elements of its parameter: what lay_out() wants to know.
  virtual std::int64_t block() const { return 1; }
  virtual void update(std::span<const ParameterRange> ranges, const StepInput& input) const = 0;
  // An optimizer that evaluates the loss itself, several times in a step: minimise() takes the place of all above.
  virtual bool needs_closure() const { return false; }
  // One step. `state`: for each of state_names() a vector like the objective's weights; `shared`: f64, the shared
  // numbers, on the processor; both written. The Errors of the objective.
  virtual Minimised minimise(Objective& objective, std::span<const std::vector<Tensor>> state, const Tensor& shared,
                             double lr) const;
  // Once after all updates of a step, where there is a shared number. A skipped step leaves it as it is.
  virtual void advance(const StepInput& /*input*/) const {}
};

// An optimizer that treats each element for itself, but for norms that its rule may need: one of the rules of
// keel/kernels/update.h. Of matrices, Adafactor keeps mean squares of rows and columns alone: keel/kernels/factors.h.
struct ElementwiseOptions {
  UpdateSettings settings;
  // Of groups that have others: the first of them is variant 1. They keep the same states, and share no number.
  std::vector<UpdateSettings> variants = {};
  double weight_decay = 0;
  // Weights narrower than f32 have no masters, and are rounded up or down at random:
  // keel/kernels/stochastic_rounding.h.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;   // of that rounding
  bool takes_rows = false;  // Optimizer::takes_rows(); an Error where the rule does not
};
// `name` must outlive the optimizer. An Error where the settings make no sense.
std::unique_ptr<Optimizer> make_elementwise(std::string_view name, const ElementwiseOptions& options);

// Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; formula at keel/kernels/rules/adam.h.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool stochastic_rounding = false;  // as ElementwiseOptions has it
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
