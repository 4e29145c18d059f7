// Fifty steps of SparseAdam, as configurations name it, against PyTorch's: the golden numbers of
// tests/golden/sparse_adam.safetensors.

#include <gtest/gtest.h>

#include "keel/autograd/row_gradient.h"
#include "keel/data/safetensors.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "keel/trainer/assembly.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

struct SparseAdamCase {
  std::string name, options;
};
const SparseAdamCase kSparseAdamCases[] = {
    {"standard", "lr: 0.01, type: sparse_adam"},
    {"options", "lr: 0.01, type: SparseAdam, betas: [0.7, 0.9], eps: 0.01"},
    {"maximize", "lr: 0.01, type: sparseadam, maximize: true"},
};
constexpr std::int64_t kStoredSparseSteps[] = {1, 2, 7, 50};  // steps whose numbers the file holds
constexpr std::int64_t kNever = 0, kOnce = 1, kOnceAt = 3, kStill = 2;

class SparseAdamGolden : public ::testing::Test {
 protected:
  Tensor tensor(const std::string& name, DType dtype) const {
    return kernels::cast(file_.tensor(name, context_), dtype);
  }
  std::vector<double> stored(const std::string& name, std::size_t at) const {
    return doubles(tensor(name, DType::f64).select(0, static_cast<std::int64_t>(at)));
  }

  Context context_ = testing::context(1);
  SafetensorsFile file_{KEEL_SOURCE_DIR "/tests/golden/sparse_adam.safetensors"};
};

TEST_F(SparseAdamGolden, FiftyStepsAreThoseOfPyTorchAndRowsThatAreNotUsedStayAsTheyAre) {
  for (const SparseAdamCase& each : kSparseAdamCases)
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(concat(each.name, " in ", dtype));
      const Config config =
          parse_config("{steps: 50, data: {type: addition}, optimizer: {" + each.options +
                           "}, scheduler: {type: LinearLR, start_factor: 1, end_factor: 0.5, total_iters: 50}}",
                       "golden.yaml");
      const std::unique_ptr<Optimizer> optimizer = make_optimizer(config);
      ASSERT_TRUE(optimizer->requirements().rows);
      ASSERT_EQ(optimizer->state_names(), (std::vector<std::string_view>{"m", "v"}));
      const Tensor table = kernels::clone(tensor("problem/start", dtype)), rows = tensor("problem/rows", DType::i64),
                   gradients = tensor("problem/gradients", dtype);
      ParameterRange range;
      range.parameter = table.flatten();
      range.state = {zeros(context_, {table.numel()}, dtype), zeros(context_, {table.numel()}, dtype)};
      const StepCurves curves = make_curves(config, context_);
      const StepInput input = {.step = kernels::make_step_state(context_)};
      std::size_t at = 0;
      for (std::int64_t step = 0; step < 50; ++step) {
        RowGradient gradient(context_, table.shape(), dtype);
        gradient.add(rows.select(0, step), gradients.select(0, step));
        range.rows = gradient.indices();
        range.gradient = gradient.values();
        kernels::add_tokens(input.step, 1);
        kernels::decide_step({.state = input.step, .curves = curves});
        const std::vector<Tensor> tables = {table, range.state[0].view(table.shape()),
                                            range.state[1].view(table.shape())};
        std::vector<std::vector<double>> before;
        for (const Tensor& kept : tables) before.push_back(doubles(kept));
        optimizer->update(std::vector{range}, input);
        const std::vector<std::int64_t> used = rows.select(0, step).to_vector<std::int64_t>();
        for (std::int64_t row = 0; row < table.dim(0); ++row) {
          if (std::find(used.begin(), used.end(), row) != used.end()) continue;
          for (std::size_t kind = 0; kind < tables.size(); ++kind) {
            const auto first = before[kind].begin() + row * table.dim(1);
            EXPECT_EQ(doubles(tables[kind].select(0, row)), std::vector<double>(first, first + table.dim(1)))
                << "step " << step << ", row " << row;
          }
        }
        if (at == std::size(kStoredSparseSteps) || step + 1 != kStoredSparseSteps[at]) continue;
        const double tolerance = dtype == DType::f64 ? 1e-7 : 1e-6;
        EXPECT_LT(relative_error(doubles(table), stored(each.name + "/weights", at)), tolerance) << step;
        EXPECT_LT(relative_error(doubles(range.state[0]), stored(each.name + "/m", at)), tolerance) << step;
        EXPECT_LT(relative_error(doubles(range.state[1]), stored(each.name + "/v", at)), tolerance) << step;
        ++at;
      }
      EXPECT_EQ(at, std::size(kStoredSparseSteps));
    }
}

TEST_F(SparseAdamGolden, HasARowThatIsNeverUsedOneThatIsUsedOnceAndOneWithoutGradient) {
  const std::vector<double> rows = doubles(tensor("problem/rows", DType::f64));
  const std::vector<double> gradients = doubles(tensor("problem/gradients", DType::f64));
  const std::size_t used = rows.size() / 50, width = gradients.size() / rows.size();
  std::size_t once = 0, still = 0, repeated = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_NE(rows[i], kNever);
    if (rows[i] == kOnce) {
      ++once;
      EXPECT_EQ(i / used, static_cast<std::size_t>(kOnceAt));
    }
    for (std::size_t j = i + 1; j < (i / used + 1) * used; ++j) repeated += rows[i] == rows[j];
    if (rows[i] != kStill || i < used) continue;
    ++still;  // after the first step, which gives it means that fade
    for (std::size_t c = 0; c < width; ++c) EXPECT_EQ(gradients[i * width + c], 0);
  }
  EXPECT_EQ(once, 1U);
  EXPECT_GT(still, 1U);
  EXPECT_GT(repeated, 50U);
}

}  // namespace
}  // namespace keel
