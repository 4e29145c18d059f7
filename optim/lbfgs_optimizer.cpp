// L-BFGS as one of the optimizers: its state is in tensors that the caller keeps.

#include <utility>

#include "keel/optim/lbfgs.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// What all elements share: these, and the inverse of each change, by its place in the ring.
constexpr std::size_t kIterations = 0, kEvaluations = 1, kStep = 2, kScale = 3, kOldest = 4, kRemembered = 5,
                      kInverses = 6;
// The kinds of state: these, and of each change that of the gradient and that of the weights.
constexpr std::size_t kDirection = 0, kGradient = 1, kChanges = 2;

class Lbfgs final : public Optimizer {
 public:
  explicit Lbfgs(const LbfgsOptions& options) : options_(options) {
    const std::string problem = options.problem();
    KEEL_CHECK(problem.empty(), name(), ": ", problem);
    names_ = {"direction", "gradient_before"};
    for (int i = 0; i < options.history; ++i) {
      names_.push_back(concat("gradient_change_", i));
      names_.push_back(concat("weight_change_", i));
    }
    shared_ = {"lbfgs", 0, static_cast<std::int64_t>(kInverses) + options.history};
  }

  std::string_view name() const override { return "LBFGS"; }
  OptimizerRequirements requirements() const override { return kLbfgsRequirements; }
  std::vector<std::string_view> state_names() const override { return {names_.begin(), names_.end()}; }
  const SharedNumber* shared_number() const override { return &shared_; }

  void update(std::span<const ParameterRange>, const StepInput&) const override {
    throw Error("LBFGS evaluates the loss several times in a step, and needs a closure for it", ErrorKind::unsupported);
  }

  Minimised minimise(Objective& objective, std::span<const std::vector<Tensor>> state, const Tensor& shared,
                     double lr) const override {
    const std::span<double> scalars(shared.data<double>(), static_cast<std::size_t>(shared.numel()));
    LbfgsState memory = read(state, scalars);
    LbfgsOptions options = options_;
    options.lr = lr;
    Minimised result;
    try {
      result = lbfgs_step(objective, memory, options);
    } catch (...) {
      write(memory, scalars);
      throw;
    }
    write(memory, scalars);
    return result;
  }

 private:
  LbfgsState read(std::span<const std::vector<Tensor>> state, std::span<const double> scalars) const {
    LbfgsState memory;
    memory.direction = state[kDirection];
    memory.gradient = state[kGradient];
    for (int i = 0; i < options_.history; ++i) {
      const auto place = static_cast<std::size_t>(i);
      memory.changes.push_back({.gradient = state[kChanges + 2 * place],
                                .weights = state[kChanges + 2 * place + 1],
                                .inverse = scalars[kInverses + place]});
    }
    memory.evaluations = static_cast<std::int64_t>(scalars[kEvaluations]);
    if (scalars[kIterations] == 0) return memory;
    memory.iterations = static_cast<std::int64_t>(scalars[kIterations]);
    memory.step = scalars[kStep];
    memory.scale = scalars[kScale];
    memory.oldest = static_cast<int>(scalars[kOldest]);
    memory.remembered = static_cast<int>(scalars[kRemembered]);
    KEEL_CHECK(memory.remembered >= 0 && memory.remembered <= options_.history && memory.oldest >= 0 &&
                   memory.oldest < options_.history,
               "LBFGS: the state is damaged: ", memory.remembered, " changes from place ", memory.oldest, " of ",
               options_.history);
    return memory;
  }

  static void write(const LbfgsState& memory, std::span<double> scalars) {
    scalars[kIterations] = static_cast<double>(memory.iterations);
    scalars[kEvaluations] = static_cast<double>(memory.evaluations);
    scalars[kStep] = memory.step;
    scalars[kScale] = memory.scale;
    scalars[kOldest] = memory.oldest;
    scalars[kRemembered] = memory.remembered;
    for (std::size_t i = 0; i < memory.changes.size(); ++i) scalars[kInverses + i] = memory.changes[i].inverse;
  }

  LbfgsOptions options_;
  std::vector<std::string> names_;
  SharedNumber shared_ = {};
};

}  // namespace

std::unique_ptr<Optimizer> make_lbfgs(const LbfgsOptions& options) { return std::make_unique<Lbfgs>(options); }

}  // namespace keel
