// L-BFGS under every stage: the same bits, PyTorch's steps, the optimum of problems that have one.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/kernels/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr int kMicros = 2;

// Mean squared error of this rank's rows, in micro-batches.
Closure closure_of(Sharded& engine, const UnitNet& net, Communicator& comm, int step) {
  return [&engine, &net, &comm, step] {
    double sum = 0, tokens = 0;
    const DType dtype = engine.options().policy.parameter;
    for (int micro = 0; micro < kMicros; ++micro) {
      const Tensor x = rows(engine.context(), step, comm, micro, kMicros, 100, dtype);
      const Tensor y = rows(engine.context(), step, comm, micro, kMicros, 900, dtype);
      const Variable loss = mse_loss(net(x), Variable(y));
      engine.backward(loss, {.weight = x.dim(0), .last = micro + 1 == kMicros});
      sum += loss.value().item() * static_cast<double>(x.dim(0));
      tokens += static_cast<double>(x.dim(0));
    }
    return sum / tokens;
  };
}

ShardedOptions options_of_stage(int number, DType dtype = DType::f32) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(dtype);
  options.micro_batches = kMicros;
  return options;
}

LbfgsOptions few(bool searches) { return {.max_iterations = 3, .history = 4, .strong_wolfe = searches}; }

// What rank 0 has after some steps.
struct ClosureOutcome {
  std::vector<double> weights, shared, grad_norms;
  std::int64_t taken = 0;
};

ClosureOutcome train_by_closure(int ranks, const ShardedOptions& options, const LbfgsOptions& lbfgs, int steps = 3) {
  ClosureOutcome outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, comm, make_lbfgs(lbfgs), options);
    std::vector<double> norms;
    for (int step = 0; step < steps; ++step) {
      const StepResult result = engine.step(closure_of(engine, net, comm, step), 0.5).get();
      EXPECT_TRUE(result.taken);
      EXPECT_GT(result.evaluations, 1);
      EXPECT_EQ(result.lr, 0.5);
      EXPECT_EQ(result.weight, kBatch);
      norms.push_back(result.grad_norm);
    }
    const std::vector<double> whole = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0)
      outcome = {whole, doubles(engine.optimizer_state().back().values), norms, engine.steps_taken()};
  });
  return outcome;
}

TEST(ShardedClosure, GivesTheSameBitsInEveryStage) {
  for (const bool searches : {false, true})
    for (const int ranks : {1, 2, 3, 4}) {
      const ClosureOutcome first = train_by_closure(ranks, options_of_stage(0), few(searches));
      EXPECT_EQ(first.taken, 3);
      for (const int number : {1, 2, 3}) {
        const ClosureOutcome other = train_by_closure(ranks, options_of_stage(number), few(searches));
        EXPECT_TRUE(other.weights == first.weights) << ranks << " ranks, stage " << number;
        EXPECT_EQ(other.shared, first.shared) << ranks << " ranks, stage " << number;
        EXPECT_EQ(other.grad_norms, first.grad_norms) << ranks << " ranks, stage " << number;
      }
    }
}

TEST(ShardedClosure, GivesTheSameBitsInEveryStageOfBf16) {
  const ClosureOutcome first = train_by_closure(3, options_of_stage(0, DType::bf16), few(true));
  for (const int number : {1, 2, 3})
    EXPECT_TRUE(train_by_closure(3, options_of_stage(number, DType::bf16), few(true)).weights == first.weights)
        << number;
}

TEST(ShardedClosure, GivesTheSameBitsInGroupsOfRanks) {
  ShardedOptions options = options_of_stage(1);
  options.sharding.group = 2;
  const ClosureOutcome first = train_by_closure(4, options, few(true));
  for (const int number : {2, 3}) {
    options.sharding.stage = number;
    EXPECT_TRUE(train_by_closure(4, options, few(true)).weights == first.weights) << number;
  }
}

TEST(ShardedClosure, AnyNumberOfRanksTakesTheStepsOfOne) {
  const ClosureOutcome one = train_by_closure(1, options_of_stage(0, DType::f64), few(true));
  for (const int ranks : {2, 3, 4})
    EXPECT_LT(relative_error(train_by_closure(ranks, options_of_stage(2, DType::f64), few(true)).weights, one.weights),
              1e-9)
        << ranks;
}

// Rosenbrock's valley. Of so few numbers the first rank owns all, and the others none.
struct Valley : Module {
  Parameter x{{6}, Initializer::zeros()};
  Variable operator()() const {
    const Scope scope(*this);
    const Variable left = slice(x.variable(), 0, 0, 5), right = slice(x.variable(), 0, 1, 6);
    const Variable one(kernels::full(left.context(), left.shape(), 1, left.dtype()));
    return sum(add(scale(square(sub(right, square(left))), 100), square(sub(one, left))));
  }
  void visit(Visitor& v) override { v("x", x); }
};

TEST(ShardedClosure, TakesTheStepsOfPyTorchOnAnyNumberOfRanks) {
  std::ifstream file(KEEL_SOURCE_DIR "/tests/golden/lbfgs.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const char* name : {"plain", "wolfe"})
    for (const int ranks : {1, 2, 3, 4})
      run_ranks(ranks, [&](Communicator& comm) {
        const nlohmann::json& each = golden[name];
        const Context context = testing::context(1);
        Valley valley;
        ShardedOptions options = stage(comm.size() - 1);
        options.policy = PrecisionPolicy::of(DType::f64);
        const int most = each["options"]["max_iter"];
        Sharded engine(valley, context, comm, make_lbfgs({.max_iterations = most, .strong_wolfe = name[0] == 'w'}),
                       options);
        engine.load_weights({{"x", {6}, 0, tensor_of(context, {-1.2, 1, -1.2, 1, -1.2, 1}, {6}, DType::f64)}});
        double loss = 0;
        bool is_first = true;
        const Closure closure = [&] {
          const Variable value = valley();
          engine.backward(value);
          if (std::exchange(is_first, false)) loss = value.value().item();
          return value.value().item();
        };
        const double lr = each["options"].value("lr", 1.0);
        std::int64_t evaluations = 0;
        for (const nlohmann::json& step : each["steps"]) {
          is_first = true;
          evaluations += engine.step(closure, lr).get().evaluations;
          EXPECT_NEAR(loss, step["loss"].get<double>(), 1e-7 * std::max(1.0, loss)) << name << ", " << ranks;
          EXPECT_EQ(evaluations, step["evaluations"].get<std::int64_t>()) << name << ", " << ranks;
          const std::vector<double> theirs = step["weights"], mine = whole_values(engine);
          for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_NEAR(mine[i], theirs[i], 1e-6) << name << ", " << ranks;
        }
      });
}

// What makes the mean of (x w + b - y)^2 smallest, from the normal equations in double precision: (w, b).
std::vector<double> least_squares(const std::vector<double>& x, const std::vector<double>& y, std::size_t width) {
  const std::size_t n = width + 1;
  std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
  for (std::size_t r = 0; r < y.size(); ++r) {
    std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(r * width),
                            x.begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
    row.push_back(1);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) rows[i][j] += row[i] * row[j];
      rows[i][n] += row[i] * y[r];
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const double factor = rows[j][i] / rows[i][i];
      for (std::size_t k = i; j != i && k <= n; ++k) rows[j][k] -= factor * rows[i][k];
    }
  std::vector<double> solution;
  for (std::size_t i = 0; i < n; ++i) solution.push_back(rows[i][n] / rows[i][i]);
  return solution;
}

TEST(ShardedClosure, FindsTheLeastSquaresOfTheNormalEquations) {
  constexpr std::int64_t kRows = 48, kColumns = 7;
  const LbfgsOptions lbfgs = {.tolerance_gradient = 1e-9, .tolerance_change = 0, .strong_wolfe = true};
  for (const DType dtype : {DType::f64, DType::f32})
    for (const int ranks : {1, 2, 3, 4})
      run_ranks(ranks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        const Tensor x = uniform_tensor(context, {kRows, kColumns}, 7, dtype);
        const Tensor y = uniform_tensor(context, {kRows, 1}, 8, dtype);
        const Span mine = part({0, kRows}, comm.size(), comm.rank());
        Linear model(kColumns, 1);
        ShardedOptions options = stage(3);
        options.policy = PrecisionPolicy::of(dtype);
        Sharded engine(model, context, comm, make_lbfgs(lbfgs), options);
        const Closure closure = [&] {
          const Variable loss =
              mse_loss(model(Variable(x.slice(0, mine.begin, mine.end))), Variable(y.slice(0, mine.begin, mine.end)));
          engine.backward(loss, {.weight = mine.count()});
          return loss.value().item();
        };
        for (int step = 0; step < 3; ++step) engine.step(closure, 1);
        const std::vector<double> found = whole_values(engine);
        const std::vector<double> best = least_squares(doubles(x), doubles(y), kColumns);
        for (std::size_t i = 0; i < best.size(); ++i)
          EXPECT_NEAR(found[i], best[i], dtype == DType::f64 ? 1e-6 : 1e-3) << ranks << " ranks, " << dtype;
      });
}

TEST(ShardedClosure, GoesOnFromItsStateAsIfItHadNeverStopped) {
  for (const int number : {0, 1, 2, 3})
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net, copy;
      Sharded engine(net, context, comm, make_lbfgs(few(true)), options_of_stage(number));
      Sharded other(copy, context, comm, make_lbfgs(few(true)), options_of_stage(number));
      for (int step = 0; step < 3; ++step) engine.step(closure_of(engine, net, comm, step), 1);
      other.load_weights(engine.weights());
      other.load_optimizer_state(engine.optimizer_state(), engine.state());
      EXPECT_EQ(other.steps_taken(), 3);
      for (int step = 3; step < 5; ++step) {
        engine.step(closure_of(engine, net, comm, step), 1);
        other.step(closure_of(other, copy, comm, step), 1);
      }
      EXPECT_TRUE(numbers_of(other.weights()) == numbers_of(engine.weights())) << number;
      EXPECT_TRUE(numbers_of(other.optimizer_state()) == numbers_of(engine.optimizer_state())) << number;
    });
}

// Copies, so that they outlive their rank.
TensorParts copies(const TensorParts& parts) {
  TensorParts all = parts;
  for (TensorPart& part : all)
    if (part.numel() > 0) part.values = kernels::clone(part.values);
  return all;
}

TEST(ShardedClosure, ItsStateIsCutForAnotherNumberOfRanksAndAnotherStage) {
  TensorParts weights, state;
  StepState steps;
  std::mutex mutex;
  run_ranks(4, [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, comm, make_lbfgs(few(false)), options_of_stage(3, DType::f64));
    for (int step = 0; step < 3; ++step) engine.step(closure_of(engine, net, comm, step), 1);
    const std::lock_guard lock(mutex);
    for (const TensorPart& part : copies(engine.weights())) weights.push_back(part);
    for (const TensorPart& part : copies(engine.optimizer_state())) state.push_back(part);
    steps = engine.state();
  });
  std::vector<std::vector<double>> ends;
  for (const int ranks : {4, 1, 2, 3})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net;
      Sharded engine(net, context, comm, make_lbfgs(few(false)), options_of_stage(ranks - 1, DType::f64));
      engine.load_weights(weights);
      engine.load_optimizer_state(state, steps);
      engine.step(closure_of(engine, net, comm, 3), 1);
      const std::vector<double> whole = whole_values(engine);
      const std::lock_guard lock(mutex);
      if (comm.rank() == 0) ends.push_back(whole);
    });
  for (std::size_t i = 1; i < ends.size(); ++i) EXPECT_LT(relative_error(ends[i], ends[0]), 1e-9) << i;
}

// Whatever goes wrong in an evaluation that all ranks know of, weights and state are ones to go on from.
TEST(ShardedClosure, ALossOrGradientThatIsNotFiniteIsAnErrorOfAllRanksThatLeavesTheWeights) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int bad : {1, 2, 3})
      for (const bool is_gradient : {false, true})
        run_ranks(ranks, [&](Communicator& comm) {
          const Context context = testing::context(1);
          UnitNet net;
          Sharded engine(net, context, comm, make_lbfgs(few(true)), options_of_stage(ranks - 1));
          engine.step(closure_of(engine, net, comm, 0), 1);
          const Closure good = closure_of(engine, net, comm, 1);
          int evaluations = 0;
          std::vector<double> before;
          const Closure closure = [&]() -> double {
            if (++evaluations == bad && comm.rank() == comm.size() - 1) {
              if (!is_gradient) return good() * NAN;
              const Tensor x = kernels::full(context, {2, kWidth}, NAN, DType::f32);
              engine.backward(mean(net(x)));
              return 1;
            }
            if (evaluations == bad && is_gradient) {
              engine.backward(mean(net(uniform_tensor(context, {2, kWidth}, 1))));
              return 1;
            }
            return good();
          };
          before = whole_values(engine);
          std::string message;
          try {
            engine.step(closure, 1);
          } catch (const AgreedError& error) {
            message = error.what();
            EXPECT_EQ(error.kind(), ErrorKind::numeric);
          }
          EXPECT_NE(message.find(is_gradient ? "is not finite" : "the loss is nan"), std::string::npos) << message;
          EXPECT_NE(message.find(concat("in evaluation ", bad)), std::string::npos) << message;
          if (bad <= 2) { EXPECT_TRUE(whole_values(engine) == before) << "the first move was taken back"; }
          EXPECT_EQ(engine.steps_taken(), 1);
          EXPECT_TRUE(engine.step(good, 1).get().taken);
          EXPECT_EQ(engine.steps_taken(), 2);
          for (const double value : whole_values(engine)) ASSERT_TRUE(std::isfinite(value));
        });
}

TEST(ShardedClosure, FollowsACurveOfRates) {
  const Context context = testing::context(1);
  UnitNet net, other;
  Sharded one(net, context, make_lbfgs(few(false)), options_of_stage(0));
  Sharded two(other, context, make_lbfgs(few(false)), options_of_stage(0));
  StepCurves curves;
  curves.rates = tensor_of(context, {0.5, 0.25, 0}, {3}, DType::f64);
  run_ranks(1, [&](Communicator& comm) {
    for (const double rate : {0.5, 0.25, 0.0, 0.0}) {
      const auto step = static_cast<int>(one.steps_taken());
      EXPECT_EQ(one.step(closure_of(one, net, comm, step), curves).get().lr, rate);
      two.step(closure_of(two, other, comm, step), rate);
      EXPECT_TRUE(whole_values(one) == whole_values(two));
    }
  });
}

TEST(ShardedClosure, NeedsMemoryAndBytesAsPlannedForEachEvaluation) {
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 4})
      run_ranks(ranks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        UnitNet net, planned;
        ShardedOptions options = options_of_stage(number);
        if (ranks % 2 == 0) options.sharding.accumulation = Accumulation::each_backward;
        const RankPlan plan = plan_rank(lay_out(planned, shard_ranks(options, ranks)), *make_lbfgs(few(false)), options,
                                        ranks, comm.rank());
        Sharded engine(net, context, comm, make_lbfgs(few(false)), options);
        const auto counted = [&] { return static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current); };
        std::int64_t owned = 0;
        for (const auto& unit : engine.units()) owned += unit->owned().count();
        EXPECT_EQ(plan.memory.optimizer, owned * (2 * 4 + 2) * 4);
        EXPECT_EQ(plan.memory.optimizer, counted());
        const auto step = [&] {
          const int evaluations = engine.step(closure_of(engine, net, comm, 0), 0.1).get().evaluations;
          for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
          return evaluations;
        };
        step();
        EXPECT_EQ(plan.memory.optimizer, counted());
        const std::int64_t before = engine.data_traffic().sent();
        const int evaluations = step();
        EXPECT_GT(evaluations, 1);
        EXPECT_EQ(engine.data_traffic().sent() - before, evaluations * plan.traffic.sent())
            << "stage " << number << ", " << ranks << " ranks";
      });
}

TEST(ShardedClosure, RefusesWhatHasNoSense) {
  const Context context = testing::context(1);
  UnitNet net;
  const auto refusal = [&](const std::function<void(ShardedOptions&)>& set) {
    ShardedOptions options = options_of_stage(0);
    set(options);
    return error_of([&] { Sharded(net, context, make_lbfgs(), options); });
  };
  EXPECT_EQ(refusal([](ShardedOptions& o) { o.clip = 1; }),
            "LBFGS: gradients that are compared with each other must not be clipped; set clip to 0");
  EXPECT_EQ(refusal([](ShardedOptions& o) { o.compression.type = Compression::Type::int8; }),
            "LBFGS: compression with error feedback is not offered: a gradient must depend on the weights alone");
  for (const LossScaling& scaling :
       {LossScaling::dynamic(), LossScaling{.growth = 2, .backoff = 1}, LossScaling{.growth = 1, .backoff = 0.5}})
    EXPECT_EQ(refusal([&](ShardedOptions& o) { o.scaling = scaling; }),
              "LBFGS: a dynamic loss scale is not offered: it skips steps");
  EXPECT_EQ(refusal([](ShardedOptions& o) {
              o.groups = [](std::string_view, const Dims&) { return ParameterGroup{.lr_factor = 0.5}; };
            }),
            "LBFGS: all parameters are one vector, and have no rates of their own");
  EXPECT_EQ(error_of([] { make_lbfgs({.history = 0}); }), "LBFGS: history must be at least 1, got 0");

  Sharded engine(net, context, make_lbfgs(), options_of_stage(0));
  engine.backward(mean(net(uniform_tensor(context, {2, kWidth}, 1))));
  EXPECT_EQ(error_of([&] { engine.step(1); }),
            "LBFGS evaluates the loss several times in a step: step() needs a closure for it");
  UnitNet other;
  Sharded plain(other, context, make_sgd());
  EXPECT_EQ(error_of([&] { plain.step([] { return 0.0; }, 1); }), "SGD needs no closure: step() follows backward()");
}

}  // namespace
}  // namespace keel
