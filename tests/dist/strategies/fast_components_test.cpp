// DeMo: momenta of a unit, of which the fast components travel.

#include "keel/dist/strategies/fast_components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/strategies/memory_at_once.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr FastComponentsOptions kFew = {.decay = 0.9, .chunk = 16, .keep = 3};

// A unit's gradient after before_step(), in double precision by the definition of the transform.
TEST(FastComponents, AreThoseOfTheirFormula) {
  run_ranks(2, [&](Communicator& comm) {
    const Context context = testing::context(1);
    constexpr std::int64_t kCount = 100;  // the last of seven chunks has four numbers
    const auto strategy = make_fast_components(kFew);
    const Tensor gradient = zeros(context, {kCount});
    strategy->begin({.units = {{"unit", Tensor(), gradient}}, .context = context, .outer = comm});
    std::vector<double> momentum[2];
    for (auto& each : momentum) each.assign(112, 0);
    for (int step = 0; step < 3; ++step) {
      std::vector<double> mean(112, 0);
      for (int group = 0; group < 2; ++group) {
        std::vector<double> given = uniform(kCount, static_cast<std::uint64_t>(10 * step + group + 1));
        for (double& each : given) each = static_cast<float>(each);
        if (group == comm.rank()) kernels::copy_into(gradient, tensor_of(context, given, {kCount}));
        given.resize(112, 0);
        std::vector<double>& m = momentum[group];
        for (std::size_t i = 0; i < 112; ++i) m[i] = 0.9 * m[i] + given[i];
        for (std::size_t chunk = 0; chunk < 112; chunk += 16) {
          const auto basis = [](std::size_t k, std::size_t i) {
            return std::sqrt((k == 0 ? 1 : 2) / 16.0) *
                   std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * k) / 32);
          };
          std::vector<double> components(16, 0);
          for (std::size_t k = 0; k < 16; ++k)
            for (std::size_t i = 0; i < 16; ++i) components[k] += basis(k, i) * m[chunk + i];
          std::vector<std::size_t> order(16);
          for (std::size_t k = 0; k < 16; ++k) order[k] = k;
          std::ranges::stable_sort(order, std::greater(), [&](std::size_t k) { return std::abs(components[k]); });
          for (std::size_t taken = 0; taken < 3; ++taken)
            for (std::size_t i = 0; i < 16; ++i) {
              const double sent = components[order[taken]] * basis(order[taken], i);
              if (chunk + i < kCount) m[chunk + i] -= sent;
              mean[chunk + i] += sent / 2;
            }
        }
      }
      strategy->before_step([] { return 1.0; });
      mean.resize(kCount);
      EXPECT_LT(relative_error(doubles(gradient), mean), 1e-5) << "step " << step;
      const std::vector<double> own(momentum[comm.rank()].begin(), momentum[comm.rank()].begin() + kCount);
      EXPECT_LT(relative_error(doubles(strategy->state(0).front().values), own), 1e-5);
      strategy->after_step([] { return true; });
      EXPECT_EQ(strategy->steps(), step + 1);
    }
    strategy->restart();
    EXPECT_EQ(strategy->steps(), 0);
    EXPECT_EQ(doubles(strategy->state(0).front().values), std::vector<double>(kCount));
  });
}

TEST(FastComponents, HaveAsMuchAtOnceAsTheirCostSays) {
  testing::expect_memory_of_cost([] { return make_fast_components(kFew); });
}

TEST(FastComponents, RefuseWhatMakesNoSense) {
  const auto refusal = [](const FastComponentsOptions& options) {
    return error_of([&] { make_fast_components(options); });
  };
  for (const double decay : {0.0, 1.0}) EXPECT_EQ(refusal({.decay = decay, .chunk = 1, .keep = 1}), "");
  EXPECT_EQ(refusal({.chunk = 4096, .keep = 4096}), "");
  for (const std::int64_t chunk : {0, 4097})
    EXPECT_EQ(refusal({.chunk = chunk}), concat("a chunk has 1 to 4096 numbers, got ", chunk));
  for (const std::int64_t keep : {0, 9})
    EXPECT_EQ(refusal({.chunk = 8, .keep = keep}), concat("1 to 8 components of a chunk are sent, got ", keep));
  for (const double decay : {-0.5, 1.5})
    EXPECT_EQ(refusal({.decay = decay}), concat("the momentum's decay is from 0 to 1, got ", decay));
}

}  // namespace
}  // namespace keel
