// Optimizer updates, sums of squares and the step's decision on a device, against the processor.

#include "keel/kernels/update.h"

#include <limits>

#include "tests/cuda/device.h"
#include "tests/kernels/every_rule.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(UpdateOnDevice);

struct DtypePair {
  DType parameter, gradient;
};
constexpr DtypePair kPairs[] = {{DType::f32, DType::f32},
                                {DType::bf16, DType::bf16},
                                {DType::bf16, DType::f32},
                                {DType::f16, DType::f16},
                                {DType::f16, DType::f32}};

Tensor step_of(const Context& context, const StepState& state) { return kernels::make_step_state(context, state); }

// Elements [from, from + count) of longer tensors, so that accesses are aligned or not as `from` says.
UpdateArgs common_args(const Context& context, std::int64_t from, std::int64_t count, DtypePair dtypes) {
  const auto part = [&](std::uint64_t seed, DType dtype, double low, double high) {
    return uniform_tensor(context, {from + count}, seed, dtype, low, high).slice(0, from, from + count);
  };
  UpdateArgs args{};
  args.parameter = part(1, dtypes.parameter, -1, 1);
  if (dtypes.parameter != DType::f32) args.master = part(1, DType::f32, -1, 1);
  args.gradient = part(2, dtypes.gradient, -1, 1);
  args.range.weight_decay = 0.1;
  return args;
}

constexpr AdamSettings kAdamW{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decoupled = true};

UpdateArgs adamw_args(const Context& context, std::int64_t from, std::int64_t count, DtypePair dtypes) {
  UpdateArgs args = common_args(context, from, count, dtypes);
  args.state[0] = uniform_tensor(context, {from + count}, 3).slice(0, from, from + count);
  args.state[1] = uniform_tensor(context, {from + count}, 4, DType::f32, 0, 1).slice(0, from, from + count);
  args.settings = kAdamW;
  return args;
}

TEST_P(UpdateOnDevice, AdamWGivesTheBitsOfTheProcessor) {
  const StepState taken{.steps = 7, .taken = 1, .lr = 0.01, .gradient_scale = 0.5};
  for (const DtypePair dtypes : kPairs)
    for (const std::int64_t from : {0, 1})
      for (const std::int64_t count : {1, 3, 64, 1029, 2500}) {
        const auto run = [&](const Context& context) {
          UpdateArgs args = adamw_args(context, from, count, dtypes);
          args.step = step_of(context, taken);
          kernels::update(args);
          return args;
        };
        const UpdateArgs there = run(device), here = run(host);
        SCOPED_TRACE(concat(dtypes.parameter, ' ', dtypes.gradient, ' ', from, ' ', count));
        EXPECT_EQ(doubles(there.parameter), doubles(here.parameter));
        EXPECT_EQ(doubles(there.state[0]), doubles(here.state[0]));
        EXPECT_EQ(doubles(there.state[1]), doubles(here.state[1]));
        EXPECT_EQ(numbers(there.master), numbers(here.master));
      }
}

TEST_P(UpdateOnDevice, AdamWFollowsADoubleReferenceForSomeSteps) {
  UpdateArgs args = adamw_args(device, 0, 37, kPairs[0]);
  kernels::fill(args.state[0], 0);
  kernels::fill(args.state[1], 0);
  std::vector<double> p = doubles(args.parameter), m(p.size()), v(p.size());
  const Tensor state = step_of(device, {});
  args.step = state;
  for (std::int64_t step = 1; step <= 4; ++step) {
    const std::vector<double> g = doubles(args.gradient);
    kernels::add_tokens(state, 2);
    kernels::decide_step({.state = state, .lr = 0.01});
    kernels::update(args);
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = kAdamW.beta1 * m[i] + (1 - kAdamW.beta1) * g[i] / 2;
      v[i] = kAdamW.beta2 * v[i] + (1 - kAdamW.beta2) * g[i] / 2 * g[i] / 2;
      p[i] -= 0.01 * args.range.weight_decay * p[i];
      p[i] -= 0.01 / (1 - std::pow(kAdamW.beta1, step)) * m[i] /
              (std::sqrt(v[i] / (1 - std::pow(kAdamW.beta2, step))) + kAdamW.epsilon);
    }
  }
  EXPECT_LT(relative_error(doubles(args.parameter), p), 1e-6);
}

TEST_P(UpdateOnDevice, SgdGivesTheBitsOfTheProcessor) {
  struct Setting {
    double momentum, dampening;
    bool nesterov;
  };
  for (const DtypePair dtypes : kPairs)
    for (const auto& [momentum, dampening, nesterov] :
         {Setting{0, 0, false}, Setting{0.9, 0.3, false}, Setting{0.8, 0, true}})
      for (const std::int64_t from : {0, 1}) {
        const auto run = [&, momentum = momentum, dampening = dampening, nesterov = nesterov](const Context& context) {
          UpdateArgs args = common_args(context, from, 1030, dtypes);
          args.settings = SgdSettings{.momentum = momentum, .dampening = dampening, .nesterov = nesterov};
          if (momentum != 0)  // its first contents are never read
            args.state[0] =
                tensor_of(context, std::vector<double>(1031, std::nan("")), {1031}).slice(0, from, from + 1030);
          for (std::int64_t step = 1; step <= 2; ++step) {
            args.step = step_of(context, {.steps = step, .taken = 1, .lr = 0.1, .gradient_scale = 0.25});
            kernels::update(args);
          }
          return args;
        };
        const UpdateArgs there = run(device), here = run(host);
        EXPECT_EQ(doubles(there.parameter), doubles(here.parameter)) << dtypes.parameter << momentum;
        EXPECT_EQ(numbers(there.master), numbers(here.master));
        EXPECT_EQ(numbers(there.state[0]), numbers(here.state[0]));
      }
}

TEST_P(UpdateOnDevice, EveryRuleGivesTheBitsOfTheProcessor) {
  for (const RuleCase& rule : every_rule())
    for (const DtypePair dtypes : kPairs)
      for (const std::int64_t from : {0, 1}) {
        const auto run = [&](const Context& context) {
          UpdateArgs args = common_args(context, from, 1030, dtypes);
          args.settings = rule.settings;
          args.range = {.lr_factor = 0.5, .weight_decay = rule.decay()};
          for (std::size_t i = 0; i < state_names(rule.settings).size(); ++i)
            args.state[i] = uniform_tensor(context, {from + 1030}, 3 + i, DType::f32, 0, 1).slice(0, from, from + 1030);
          if (const std::vector<double> shared = first_shared(rule.settings); !shared.empty())
            args.shared = tensor_of(context, shared, {static_cast<std::int64_t>(shared.size())}, DType::f64);
          for (std::int64_t step = 1; step <= 3; ++step) {
            args.step = step_of(context, {.steps = step, .taken = 1, .lr = 0.1, .gradient_scale = 0.25});
            kernels::update(args);
            if (shared_number(args.settings) == nullptr) continue;
            kernels::advance_shared({.shared = args.shared, .step = args.step, .settings = args.settings});
            args.step = step_of(context, {.steps = step, .taken = 0, .lr = 7});
            kernels::advance_shared({.shared = args.shared, .step = args.step, .settings = args.settings});
          }
          return args;
        };
        const UpdateArgs there = run(device), here = run(host);
        SCOPED_TRACE(concat(rule.name, ' ', dtypes.parameter, ' ', dtypes.gradient, ' ', from));
        EXPECT_EQ(doubles(there.parameter), doubles(here.parameter));
        EXPECT_EQ(numbers(there.master), numbers(here.master));
        EXPECT_EQ(numbers(there.shared), numbers(here.shared));
        for (std::size_t i = 0; i < here.state.size(); ++i)
          EXPECT_EQ(numbers(there.state[i]), numbers(here.state[i])) << i;
      }
}

TEST_P(UpdateOnDevice, NormsAreThoseOfTheProcessorInAnOrderOfTheirOwn) {
  for (const RuleCase& rule : every_rule()) {
    const int norms = norm_count(rule.settings);
    if (norms == 0) continue;
    for (const DtypePair dtypes : kPairs)
      for (const std::int64_t from : {0, 1})
        for (const std::int64_t count : {1, 1030, 5000}) {
          const auto run = [&](const Context& context) {
            UpdateArgs args = common_args(context, from, count, dtypes);
            args.settings = rule.settings;
            for (std::size_t i = 0; i < state_names(rule.settings).size(); ++i)
              args.state[i] =
                  uniform_tensor(context, {from + count}, 3 + i, DType::f32, 0, 1).slice(0, from, from + count);
            args.step = step_of(context, {.steps = 2, .taken = 1, .lr = 0.1, .gradient_scale = 0.25});
            const Tensor squares = zeros(context, {norms}, DType::f64);
            kernels::measure_norms(args, squares);
            const std::vector<double> measured = doubles(squares);
            if (count < 5000) return measured;
            args.step = step_of(context, {.steps = 2, .taken = 0});
            kernels::fill(squares, 7);
            kernels::measure_norms(args, squares);
            EXPECT_EQ(doubles(squares), std::vector<double>(static_cast<std::size_t>(norms), 7));
            return measured;
          };
          const std::vector<double> there = run(device), here = run(host);
          for (std::size_t n = 0; n < here.size(); ++n)
            EXPECT_NEAR(there[n], here[n], 1e-13 * here[n]) << rule.name << dtypes.parameter << from << count;
        }
  }
}

TEST_P(UpdateOnDevice, EveryRuleLeavesAnEmptyRangeAlone) {
  for (const RuleCase& rule : every_rule()) {
    UpdateArgs args = common_args(device, 0, 0, kPairs[1]);
    args.settings = rule.settings;
    args.range.weight_decay = rule.decay();
    for (std::size_t i = 0; i < state_names(rule.settings).size(); ++i) args.state[i] = zeros(device, {0});
    args.shared = zeros(device, {std::max(1, norm_count(rule.settings))}, DType::f64);
    args.step = step_of(device, {.steps = 1, .taken = 1, .lr = 0.1});
    EXPECT_NO_THROW(kernels::update(args)) << rule.name;
  }
}

TEST_P(UpdateOnDevice, ABlockGoesOnWhereThereIsMuchToDo) {
  if (GetParam() != Order::forward) return;  // one order is enough for a test of this size
  constexpr std::int64_t kCount = 2 * 1024 * 2048 + 5;
  const auto run = [&](const Context& context) {
    UpdateArgs args{};
    args.parameter = kernels::cast(kernels::arange(context, 0, kCount), DType::f32);
    args.gradient = kernels::cast(kernels::arange(context, 7, kCount), DType::f32);
    args.step = step_of(context, {.steps = 1, .taken = 1, .lr = 0.5});
    kernels::update(args);
    return args.parameter.to_vector<float>();
  };
  EXPECT_TRUE(run(device) == run(host));
}

TEST_P(UpdateOnDevice, StochasticRoundingGivesTheBitsOfTheProcessor) {
  for (const DtypePair dtypes : kPairs)
    for (const bool master : {false, true})
      for (const std::int64_t first : {0, 5}) {
        const auto run = [&](const Context& context) {
          UpdateArgs args = adamw_args(context, 1, 1027, dtypes);
          if (!master) args.master = {};
          args.stochastic_rounding = true;
          args.seed = 11;
          args.first = first;
          args.step = step_of(context, {.steps = 3, .taken = 1, .lr = 1e-4, .gradient_scale = 1});
          kernels::update(args);
          return doubles(args.parameter);
        };
        EXPECT_EQ(run(device), run(host)) << dtypes.parameter << dtypes.gradient << master << first;
      }
}

TEST_P(UpdateOnDevice, ChangeNothingInAStepThatIsNotTaken) {
  for (const DtypePair dtypes : kPairs) {
    UpdateArgs args = adamw_args(device, 0, 100, dtypes);
    UpdateArgs plain = common_args(device, 0, 100, dtypes);
    const std::vector<double> before = doubles(args.parameter), m = doubles(args.state[0]), v = doubles(args.state[1]);
    args.step = plain.step = step_of(device, {.steps = 1, .taken = 0, .lr = 1});
    kernels::update(args);
    kernels::update(plain);
    EXPECT_EQ(doubles(args.parameter), before);
    EXPECT_EQ(doubles(args.state[0]), m);
    EXPECT_EQ(doubles(args.state[1]), v);
    EXPECT_EQ(doubles(plain.parameter), before);
  }
}

TEST_P(UpdateOnDevice, RefuseFp64WithItsName) {
  UpdateArgs args = adamw_args(device, 0, 4, kPairs[0]);
  args.parameter = zeros(device, {4}, DType::f64);
  args.gradient = zeros(device, {4}, DType::f64);
  args.state[0] = zeros(device, {4}, DType::f64);
  args.state[1] = zeros(device, {4}, DType::f64);
  args.step = step_of(device, {});
  EXPECT_THROW(kernels::update(args), Error);
}

TEST_P(UpdateOnDevice, SquaresAreSummedInDoubleAndInAFixedOrder) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t count : {0, 1, 7, 1023, 16384, 40003}) {
      const Tensor x = uniform_tensor(device, {count + 1}, 3, dtype, -100, 100);
      double expected = 0;
      for (const double value : doubles(x.slice(0, 0, count))) expected += value * value;
      const double sum = kernels::sum_of_squares(x.slice(0, 0, count));
      EXPECT_NEAR(sum, expected, 1e-12 * expected) << dtype << count;
      // The same numbers at another alignment.
      const Tensor moved = empty(device, {count + 1}, dtype).slice(0, 1, count + 1);
      kernels::copy_into(moved, x.slice(0, 0, count));
      EXPECT_EQ(kernels::sum_of_squares(moved), sum) << dtype << count;
    }
  EXPECT_NEAR(kernels::sum_of_squares(tensor_of(device, {1e30, -1e30, 3e38}, {3})) / 9e76, 1, 1e-6);
}

TEST_P(UpdateOnDevice, ClippedValuesHaveTheBitsOfTheProcessor) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t count : {0, 1, 4095, 4097, 20003}) {
      const auto run = [&](const Context& context) {
        const Tensor x = uniform_tensor(context, {count + 1}, 5, dtype, -100, 100).slice(0, 1, count + 1);
        kernels::clip_values(x, step_of(context, {.gradient_scale = 1.0 / 48}), 0.7);
        return doubles(x);
      };
      const std::vector<double> there = run(device);
      EXPECT_TRUE(there == run(host)) << dtype << count;
      for (const double each : there) EXPECT_LE(std::abs(each), 0.7 * 48 * 1.004) << dtype;
    }
}

TEST_P(UpdateOnDevice, TheFirstElementThatIsNotFiniteIsFoundAnywhere) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kKernelTypes)
    for (const double bad : {infinity, -infinity, std::nan("")})
      for (const std::size_t at : {0, 17, 16384, 20001}) {
        std::vector<double> values(20002, 0.5);
        values[at] = bad;
        values.back() = infinity;
        const Tensor state = step_of(device, {.steps = 2});
        kernels::add_squares(tensor_of(device, values, {20002}, dtype), state, 1000);
        kernels::add_tokens(state, 1);
        kernels::decide_step({.state = state});
        const StepState decided = kernels::read_step_state(state);
        EXPECT_EQ(decided.first_bad, 1000 + static_cast<std::int64_t>(at)) << dtype;
        EXPECT_EQ(decided.taken, 0);
        EXPECT_EQ(decided.steps, 2);
        EXPECT_EQ(decided.partial.bad, StepPartial::kNothingBad);  // ready for the next step
      }
  EXPECT_TRUE(kernels::all_finite(tensor_of(device, {65504, -65504, 0, -0.0, 1e-7}, {5}, DType::f16)));
  EXPECT_TRUE(kernels::all_finite(empty(device, {0})));
}

TEST_P(UpdateOnDevice, TheStepIsDecidedAsOnTheProcessor) {
  for (const double clip : {0.0, 1.0, 100.0})
    for (const bool table : {false, true}) {
      const auto run = [&](const Context& context) {
        const Tensor state = step_of(context, {.steps = 1});
        kernels::add_squares(tensor_of(context, {3, 4}, {2}), state);
        const Tensor noted = step_of(context, {.steps = 5});
        kernels::add_squares(tensor_of(context, {12}, {1}), noted);
        kernels::add_noted(noted, state, 2);
        kernels::add_tokens(state, 4);
        StepArgs args{.state = state, .clip = clip, .lr = 0.5};
        if (table)
          args.curves = {.rates = from_values(context, std::vector<double>{0.1, 0.2}, {2}),
                         .momenta = from_values(context, std::vector<double>{0.9, 0.8, 0.7}, {3})};
        kernels::decide_step(args);
        kernels::decide_step(args);  // of nothing
        return kernels::read_step_state(state);
      };
      const StepState there = run(device), here = run(host);
      EXPECT_EQ(std::memcmp(&there, &here, sizeof there), 0) << clip << table;
    }
}

}  // namespace
}  // namespace keel
