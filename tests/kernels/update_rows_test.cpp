// Updates of single rows of a table.

#include <gtest/gtest.h>

#include "keel/kernels/update.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kRows = 9, kWidth = 5;
constexpr AdamSettings kSparse{.epsilon_first = true};

struct Types {
  DType parameter, gradient;
  bool master, stochastic;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32, false, false},  {DType::f64, DType::f64, false, false},
                            {DType::bf16, DType::bf16, true, false}, {DType::bf16, DType::f32, true, false},
                            {DType::bf16, DType::bf16, false, true}, {DType::f16, DType::f32, true, false}};

// All of a table, whose gradient is that of its rows.
UpdateArgs table_args(const Context& context, const Types& types) {
  const DType wide = types.parameter == DType::f64 ? DType::f64 : DType::f32;
  UpdateArgs args{};
  args.parameter = uniform_tensor(context, {kRows * kWidth}, 1, types.parameter);
  if (types.master) args.master = uniform_tensor(context, {kRows * kWidth}, 1, wide);
  args.gradient = uniform_tensor(context, {kRows * kWidth}, 2, types.gradient);
  args.state[0] = uniform_tensor(context, {kRows * kWidth}, 3, wide);
  args.state[1] = uniform_tensor(context, {kRows * kWidth}, 4, wide, 0, 1);
  args.step = kernels::make_step_state(context, {.steps = 3, .taken = 1, .lr = 0.01, .gradient_scale = 0.5});
  args.settings = kSparse;
  args.stochastic_rounding = types.stochastic;
  args.seed = 5;
  args.first = 17;
  return args;
}

// The same update, with a gradient of these rows alone.
UpdateArgs rows_args(const Context& context, const Types& types, const std::vector<std::int64_t>& rows) {
  UpdateArgs args = table_args(context, types);
  const Tensor whole = args.gradient.view({kRows, kWidth});
  std::vector<double> gradient;
  for (const std::int64_t row : rows)
    for (const double value : doubles(whole.select(0, row))) gradient.push_back(value);
  const auto count = static_cast<std::int64_t>(rows.size());
  args.gradient = tensor_of(context, gradient, {count, kWidth}, types.gradient);
  args.rows = from_values(context, rows, {count});
  return args;
}

std::vector<double> row_of(const Tensor& flat, std::int64_t row) {
  return doubles(flat.slice(0, row * kWidth, (row + 1) * kWidth));
}

TEST(UpdateRows, GivesTheBitsOfTheWholeUpdateInTheRowsAndChangesNoOther) {
  const Context context = testing::context(2);
  const std::vector<std::int64_t> rows = {0, 3, 4, 8};
  for (const Types& types : kTypes) {
    const UpdateArgs before = table_args(context, types), whole = table_args(context, types),
                     some = rows_args(context, types, rows);
    kernels::update(whole);
    kernels::update(some);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const bool used = std::find(rows.begin(), rows.end(), row) != rows.end();
      const UpdateArgs& expected = used ? whole : before;
      SCOPED_TRACE(concat(types.parameter, ' ', types.gradient, " row ", row));
      EXPECT_EQ(row_of(some.parameter, row), row_of(expected.parameter, row));
      EXPECT_EQ(row_of(some.state[0], row), row_of(expected.state[0], row));
      EXPECT_EQ(row_of(some.state[1], row), row_of(expected.state[1], row));
      if (types.master) { EXPECT_EQ(row_of(some.master, row), row_of(expected.master, row)); }
      if (used) { EXPECT_NE(row_of(some.parameter, row), row_of(before.parameter, row)); }
    }
  }
}

TEST(UpdateRows, ChangesNothingWithoutRowsAndInASkippedStep) {
  const Context context = testing::context(1);
  const UpdateArgs before = table_args(context, kTypes[0]);
  const UpdateArgs none = rows_args(context, kTypes[0], {});
  kernels::update(none);
  EXPECT_EQ(doubles(none.parameter), doubles(before.parameter));
  UpdateArgs skipped = rows_args(context, kTypes[0], {1, 2});
  skipped.step = kernels::make_step_state(context, {.steps = 3, .taken = 0, .lr = 0.01});
  kernels::update(skipped);
  EXPECT_EQ(doubles(skipped.parameter), doubles(before.parameter));
  EXPECT_EQ(doubles(skipped.state[0]), doubles(before.state[0]));
}

TEST(UpdateRows, RefusesRowsThatAreNotThoseOfTheTable) {
  const Context context = testing::context(1);
  const auto refusal = [&](const std::vector<std::int64_t>& rows, const UpdateSettings& settings) -> std::string {
    UpdateArgs args = rows_args(context, kTypes[0], {1, 2});
    args.rows = from_values(context, rows, {static_cast<std::int64_t>(rows.size())});
    args.settings = settings;
    try {
      kernels::update(args);
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(refusal({1, 2}, kSparse), "");
  EXPECT_EQ(refusal({1, 9}, kSparse), "adam: rows must ascend in [0, 9), got 9 at position 1");
  EXPECT_EQ(refusal({2, 2}, kSparse), "adam: rows must ascend in [0, 9), got 2 at position 1");
  EXPECT_EQ(refusal({-1, 2}, kSparse), "adam: rows must ascend in [0, 9), got -1 at position 0");
  EXPECT_NE(refusal({1}, kSparse).find("the gradient of 1 rows of"), std::string::npos);
  EXPECT_EQ(refusal({1, 2}, LionSettings{}), "lion: updates no single rows");
}

}  // namespace
}  // namespace keel
