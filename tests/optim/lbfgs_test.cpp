#include "keel/optim/lbfgs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;

// Rosenbrock's valley in as many dimensions as there are numbers: lowest, 0, where all are 1. The numbers may lie in
// several tensors.
class Rosenbrock : public Objective {
 public:
  explicit Rosenbrock(const std::vector<std::vector<double>>& parts, DType dtype = DType::f64,
                      const Context& context = testing::context(1))
      : context_(context) {
    for (const std::vector<double>& part : parts) {
      const Dims shape = {static_cast<std::int64_t>(part.size())};
      weights_.push_back(testing::tensor_of(context_, part, shape, dtype));
      gradient_.push_back(zeros(context_, shape, dtype));
    }
  }
  double evaluate() override {
    const std::vector<double> x = numbers();
    std::vector<double> slope(x.size());
    double loss = 0;
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      const double off = x[i + 1] - x[i] * x[i], left = 1 - x[i];
      loss += 100 * off * off + left * left;
      slope[i] += -400 * off * x[i] - 2 * left;
      slope[i + 1] += 200 * off;
    }
    std::size_t first = 0;
    for (const Tensor& part : gradient_) {
      const auto count = static_cast<std::size_t>(part.numel());
      const std::vector<double> values(slope.begin() + static_cast<std::ptrdiff_t>(first),
                                       slope.begin() + static_cast<std::ptrdiff_t>(first + count));
      kernels::copy_into(part, testing::tensor_of(context_, values, part.shape(), DType::f64));
      first += count;
    }
    return ++evaluations_ == fails_at ? std::nan("") : loss;
  }
  const std::vector<Tensor>& weights() override { return weights_; }
  const std::vector<Tensor>& gradient() override { return gradient_; }
  std::vector<double> numbers() const {
    std::vector<double> all;
    for (const Tensor& part : weights_)
      for (const double value : doubles(part)) all.push_back(value);
    return all;
  }
  int evaluations() const { return evaluations_; }
  int fails_at = 0;

 private:
  Context context_;
  std::vector<Tensor> weights_, gradient_;
  int evaluations_ = 0;
};

LbfgsOptions options_of(const nlohmann::json& golden) {
  LbfgsOptions options;
  options.lr = golden.value("lr", options.lr);
  options.max_iterations = golden.value("max_iter", options.max_iterations);
  options.max_evaluations = golden.value("max_eval", options.max_evaluations);
  options.history = golden.value("history_size", options.history);
  options.strong_wolfe = golden.contains("line_search_fn");
  return options;
}

TEST(Lbfgs, TakesTheStepsOfPyTorch) {
  std::ifstream file(KEEL_SOURCE_DIR "/tests/golden/lbfgs.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.size(), 5u);
  for (const auto& [name, each] : golden.items()) {
    Rosenbrock problem({{-1.2, 1, -1.2, 1, -1.2, 1}});
    LbfgsState state;
    for (const nlohmann::json& step : each["steps"]) {
      const Minimised result = lbfgs_step(problem, state, options_of(each["options"]));
      const double loss = step["loss"];
      EXPECT_NEAR(result.loss, loss, 1e-9 * std::max(1.0, loss)) << name;
      EXPECT_EQ(state.evaluations, step["evaluations"].get<std::int64_t>()) << name;
      const std::vector<double> theirs = step["weights"], mine = problem.numbers();
      for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_NEAR(mine[i], theirs[i], 1e-8) << name;
    }
    EXPECT_EQ(problem.evaluations(), state.evaluations);
  }
}

TEST(Lbfgs, SolvesRosenbrock) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Rosenbrock problem({{-1.2, 1}}, dtype);
    LbfgsState state;
    Minimised result;
    for (int step = 0; step < 10; ++step)
      result = lbfgs_step(problem, state, {.tolerance_gradient = 1e-10, .tolerance_change = 0, .strong_wolfe = true});
    for (const double x : problem.numbers()) EXPECT_NEAR(x, 1, dtype == DType::f64 ? 1e-9 : 1e-3) << dtype;
    if (dtype != DType::f64) continue;
    EXPECT_EQ(result.iterations, 0);  // nothing is left to do
    EXPECT_EQ(result.evaluations, 1);
  }
}

// PyTorch gives a search what is left of max_eval, beside its first trial.
TEST(Lbfgs, ASearchEndsWithTheEvaluationsOfItsStep) {
  const auto evaluations = [](int most) {
    Rosenbrock problem({{-1.2, 1, -1.2, 1, -1.2, 1}});
    LbfgsState state;
    // A first step so long that its search needs many trials.
    return lbfgs_step(problem, state, {.lr = 1e6, .max_iterations = 1, .max_evaluations = most, .strong_wolfe = true})
        .evaluations;
  };
  const int needed = evaluations(100);
  ASSERT_GT(needed, 6);
  for (int most = 1; most < needed - 1; ++most) EXPECT_EQ(evaluations(most), most + 1);
  for (const int most : {needed, needed + 1}) EXPECT_EQ(evaluations(most), needed);
}

TEST(Lbfgs, NumbersInSeveralTensorsAreOneProblem) {
  Rosenbrock whole({{-1.2, 1, 0.5, -0.7, 2}}), parts({{-1.2}, {}, {1, 0.5, -0.7}, {2}});
  LbfgsState state, state_of_parts;
  for (int step = 0; step < 4; ++step) {
    lbfgs_step(whole, state, {.max_iterations = 3, .strong_wolfe = true});
    lbfgs_step(parts, state_of_parts, {.max_iterations = 3, .strong_wolfe = true});
    const std::vector<double> one = whole.numbers(), other = parts.numbers();
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-9) << step;
  }
}

LbfgsState clone(const LbfgsState& state) {
  LbfgsState copy = state;
  const auto renew = [](std::vector<Tensor>& x) {
    for (Tensor& part : x) part = kernels::clone(part);
  };
  renew(copy.direction);
  renew(copy.gradient);
  for (LbfgsState::Change& change : copy.changes) {
    renew(change.gradient);
    renew(change.weights);
  }
  return copy;
}

TEST(Lbfgs, ACopyOfTheStateGoesOnToTheSameBits) {
  const Context context = testing::context(1);
  Rosenbrock problem({{-1.2, 1, 0.5}}, DType::f64, context);
  LbfgsState state;
  lbfgs_step(problem, state, {.max_iterations = 4});
  Rosenbrock other({problem.numbers()}, DType::f64, context);
  LbfgsState copy = clone(state);
  lbfgs_step(problem, state, {.max_iterations = 4});
  lbfgs_step(other, copy, {.max_iterations = 4});
  EXPECT_EQ(problem.numbers(), other.numbers());
}

TEST(Lbfgs, RemembersAsManyChangesAsItMay) {
  Rosenbrock problem({{-1.2, 1, 0.5, 2}});
  LbfgsState state;
  for (int step = 0; step < 3; ++step) {
    lbfgs_step(problem, state, {.history = 5, .strong_wolfe = true});
    EXPECT_LE(state.changes.size(), 5u);
  }
  EXPECT_EQ(state.changes.size(), 5u);
}

TEST(Lbfgs, ALossThatIsNotANumberLeavesTheWeightsAsTheyWereBeforeTheMove) {
  for (const bool searches : {false, true}) {
    Rosenbrock problem({{-1.2, 1}});
    LbfgsState state;
    problem.fails_at = 2;  // the first after a move
    EXPECT_THROW(lbfgs_step(problem, state, {.strong_wolfe = searches}), Error);
    EXPECT_EQ(problem.numbers(), (std::vector<double>{-1.2, 1}));
    problem.fails_at = 0;  // and nothing is remembered of it
    Rosenbrock other({{-1.2, 1}});
    LbfgsState fresh;
    lbfgs_step(problem, state, {.strong_wolfe = searches});
    lbfgs_step(other, fresh, {.strong_wolfe = searches});
    EXPECT_EQ(problem.numbers(), other.numbers());
  }
}

TEST(Lbfgs, ARateOfZeroMovesNothing) {
  Rosenbrock problem({{-1.2, 1}});
  LbfgsState state;
  const Minimised result = lbfgs_step(problem, state, {.lr = 0});
  EXPECT_EQ(result.evaluations, 1);
  EXPECT_EQ(problem.numbers(), (std::vector<double>{-1.2, 1}));
}

// As an optimizer it keeps in tensors that its caller has made what the state of lbfgs_step() holds.
TEST(Lbfgs, AsAnOptimizerTakesTheSameStepsFromItsTensors) {
  const LbfgsOptions options = {.max_iterations = 4, .history = 3, .strong_wolfe = true};
  const std::unique_ptr<Optimizer> optimizer = make_lbfgs(options);
  ASSERT_TRUE(optimizer->requirements().closure);
  EXPECT_EQ(optimizer->state_names().size(), 8u);
  const Context context = testing::context(1);
  const std::vector<std::vector<double>> begin = {{-1.2}, {1, 0.5, 2}};
  Rosenbrock one(begin, DType::f64, context), other(begin, DType::f64, context);
  std::vector<std::vector<Tensor>> tensors(optimizer->state_names().size());
  for (auto& kind : tensors) kind = {zeros(context, {1}, DType::f64), zeros(context, {3}, DType::f64)};
  const Tensor shared = zeros(context, {optimizer->shared_number()->count}, DType::f64);
  LbfgsState state;
  for (int step = 0; step < 5; ++step) {
    const Minimised mine = optimizer->minimise(one, tensors, shared, 0.5);
    LbfgsOptions slower = options;
    slower.lr = 0.5;
    const Minimised theirs = lbfgs_step(other, state, slower);
    EXPECT_EQ(mine.loss, theirs.loss) << step;
    EXPECT_EQ(mine.evaluations, theirs.evaluations) << step;
    EXPECT_EQ(one.numbers(), other.numbers()) << step;
  }
  EXPECT_EQ(state.remembered, 3);
  EXPECT_GT(state.iterations, 6) << "old changes were replaced";
}

// One weight in a valley whose lowest point can be moved, as another batch moves it.
class Valley : public Objective {
 public:
  double lowest = 1;
  explicit Valley(const Context& context = testing::context(1))
      : weights_({zeros(context, {1}, DType::f64)}), gradient_({zeros(context, {1}, DType::f64)}) {}
  double evaluate() override {
    const double off = weights_[0].item() - lowest;
    kernels::fill(gradient_[0], off);
    return off * off / 2;
  }
  const std::vector<Tensor>& weights() override { return weights_; }
  const std::vector<Tensor>& gradient() override { return gradient_; }

 private:
  std::vector<Tensor> weights_, gradient_;
};

TEST(Lbfgs, AGradientAsSmallAsItsToleranceEndsTheStep) {
  for (const double tolerance : {1.0, 0.5}) {
    Valley valley;
    LbfgsState state;
    const Minimised result = lbfgs_step(valley, state, {.tolerance_gradient = tolerance});
    EXPECT_EQ(result.largest_gradient, 1);
    EXPECT_EQ(result.iterations, tolerance == 1 ? 0 : 1);
  }
}

TEST(Lbfgs, NothingIsRememberedOfADirectionAlongWhichNothingMoved) {
  Valley valley;
  LbfgsState state;
  lbfgs_step(valley, state, {.max_iterations = 1});
  valley.lowest = 3;
  lbfgs_step(valley, state, {.max_iterations = 1, .tolerance_change = 1e9});  // the slope promises less
  EXPECT_EQ(valley.weights()[0].item(), 1);
  valley.lowest = -10;
  lbfgs_step(valley, state, {.max_iterations = 1});
  EXPECT_EQ(state.remembered, 0);
  EXPECT_EQ(valley.weights()[0].item(), -10) << "along the gradient alone";
}

// What each evaluation finds, whatever the weights are; the last one for all that follow.
class Script : public Objective {
 public:
  struct Found {
    double loss;
    std::vector<double> gradient;
  };
  explicit Script(std::vector<Found> found) : found_(std::move(found)) {
    const auto count = static_cast<std::int64_t>(found_[0].gradient.size());
    weights_ = {zeros(context_, {count}, DType::f64)};
    gradient_ = {zeros(context_, {count}, DType::f64)};
  }
  double evaluate() override {
    const Found& now = found_[std::min(next_++, found_.size() - 1)];
    kernels::copy_into(gradient_[0], testing::tensor_of(context_, now.gradient, gradient_[0].shape(), DType::f64));
    return now.loss;
  }
  const std::vector<Tensor>& weights() override { return weights_; }
  const std::vector<Tensor>& gradient() override { return gradient_; }

 private:
  Context context_ = testing::context(1);
  std::vector<Found> found_;
  std::size_t next_ = 0;
  std::vector<Tensor> weights_, gradient_;
};

TEST(Lbfgs, AMoveOrAChangeOfTheLossAsSmallAsItsToleranceEndsTheStep) {
  const auto ends = [](std::vector<Script::Found> found, double lr, double tolerance) {
    Script problem(std::move(found));
    LbfgsState state;
    const LbfgsOptions options{.lr = lr, .max_iterations = 4, .max_evaluations = 9, .tolerance_change = tolerance};
    return lbfgs_step(problem, state, options).iterations == 1;
  };
  // The first move is lr times the gradient, 0.25; the loss comes down by 7.
  const std::vector<Script::Found> far = {{8, {0.5}}, {1, {0.25}}};
  EXPECT_TRUE(ends(far, 0.5, 0.25));
  EXPECT_FALSE(ends(far, 0.5, 0.249));
  // The first move is 1, and the loss comes down by 0.25.
  const std::vector<Script::Found> flat = {{1, {2}}, {0.75, {1}}};
  EXPECT_TRUE(ends(flat, 1, 0.26));
  EXPECT_FALSE(ends(flat, 1, 0.25));
}

TEST(Lbfgs, AChangeThatSaysLittleOfTheCurvatureIsForgotten) {
  // The first move is twice the gradient, and what the gradient changes along it has this product with it.
  const auto remembered = [](double product) {
    Script problem({{1, {0.5, product}}, {1, {0.5, product - 0.5}}});
    LbfgsState state;
    const LbfgsOptions options{.lr = 2, .max_iterations = 1, .tolerance_change = 0};
    lbfgs_step(problem, state, options);
    lbfgs_step(problem, state, options);
    return state.remembered;
  };
  EXPECT_EQ(remembered(1e-10), 0);
  EXPECT_EQ(remembered(0.99e-10), 0);
  EXPECT_EQ(remembered(1.01e-10), 1);
}

TEST(Lbfgs, AsAnOptimizerSharesSixNumbersAndOneOfEachChange) {
  const auto optimizer = make_lbfgs({.history = 3});
  const SharedNumber& shared = *optimizer->shared_number();
  EXPECT_EQ(std::tuple(shared.name, shared.initial, shared.count), std::tuple("lbfgs", 0.0, 9));
}

TEST(Lbfgs, AsAnOptimizerRefusesAStateThatCannotBe) {
  const std::unique_ptr<Optimizer> optimizer = make_lbfgs({.max_iterations = 1, .history = 3});
  const Context context = testing::context(1);
  // Iterations, evaluations, step, scale, the oldest change's place, and how many there are.
  const auto refusal = [&](double oldest, double remembered) {
    Valley valley(context);
    std::vector<std::vector<Tensor>> state(optimizer->state_names().size());
    for (auto& kind : state) kind = {zeros(context, {1}, DType::f64)};
    const Tensor shared = zeros(context, {optimizer->shared_number()->count}, DType::f64);
    shared.data<double>()[0] = 1;
    shared.data<double>()[4] = oldest;
    shared.data<double>()[5] = remembered;
    return testing::error_of([&] { optimizer->minimise(valley, state, shared, 1); });
  };
  for (const auto& [oldest, remembered] : {std::pair{0, 0}, {2, 0}, {0, 3}, {2, 3}})
    EXPECT_EQ(refusal(oldest, remembered), "") << oldest << ' ' << remembered;
  for (const auto& [oldest, remembered] : {std::pair{3, 0}, {-1, 0}, {0, 4}, {0, -1}})
    EXPECT_EQ(refusal(oldest, remembered),
              concat("LBFGS: the state is damaged: ", remembered, " changes from place ", oldest, " of 3"));
}

TEST(Lbfgs, RefusesOptionsThatMakeNoSense) {
  const auto refusal = [](const LbfgsOptions& options) { return options.problem(); };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.lr = 0, .max_iterations = 1, .tolerance_gradient = 0, .tolerance_change = 0, .history = 1}), "");
  EXPECT_EQ(refusal({.tolerance_gradient = -1}), "tolerances must not be negative, got -1 and 1e-09");
  EXPECT_EQ(refusal({.lr = -1}), "lr must not be negative, got -1");
  EXPECT_EQ(refusal({.max_iterations = 0}), "max_iterations must be at least 1, got 0");
  EXPECT_EQ(refusal({.max_evaluations = -1}), "max_evaluations must not be negative, got -1");
  EXPECT_EQ(refusal({.tolerance_change = -1}), "tolerances must not be negative, got 1e-07 and -1");
  EXPECT_EQ(refusal({.history = 0}), "history must be at least 1, got 0");
}

}  // namespace
}  // namespace keel
