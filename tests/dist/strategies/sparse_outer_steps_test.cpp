// SparseLoCo: what groups tell each other of how far their weights have come.

#include "keel/dist/strategies/sparse_outer_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/strategies/memory_at_once.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr SparseOuterStepOptions kSparse = {.every = 3, .rate = 0.8, .decay = 0.9, .chunk = 100, .keep = 7};
constexpr SparseOuterStepOptions kSparseExact = {
    .every = 2, .rate = 1, .decay = 0.5, .chunk = 64, .keep = 3, .bits = 32};

// What a chunk's largest numbers arrive as, in double precision; others are 0.
std::vector<double> sent_of(const std::vector<double>& chunk, const SparseOuterStepOptions& options) {
  std::vector<std::size_t> order(chunk.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return std::abs(chunk[i]); });
  order.resize(static_cast<std::size_t>(options.keep));
  std::vector<double> sent(chunk.size(), 0);
  double mean = 0, sums[2] = {}, counts[2] = {};
  for (const std::size_t i : order) mean += std::abs(chunk[i]) / static_cast<double>(options.keep);
  for (const std::size_t i : order) {
    sums[std::abs(chunk[i]) > mean] += std::abs(chunk[i]);
    counts[std::abs(chunk[i]) > mean] += 1;
  }
  for (const std::size_t i : order) {
    const bool larger = std::abs(chunk[i]) > mean;
    sent[i] = options.bits == 32 ? chunk[i] : std::copysign(sums[larger] / counts[larger], chunk[i]);
  }
  return sent;
}

// Weights and error of a unit after outer steps, whose groups move by numbers that are given.
void expect_formula(const SparseOuterStepOptions& options) {
  run_ranks(2, [&](Communicator& comm) {
    const Context context = testing::context(1);
    const std::size_t count = 250, chunk = static_cast<std::size_t>(options.chunk);
    const std::size_t filled = (count + chunk - 1) / chunk * chunk;
    const auto strategy = make_sparse_outer_steps(options);
    const Tensor weights = uniform_tensor(context, {static_cast<std::int64_t>(count)}, 7);
    strategy->begin({.units = {{"unit", weights, Tensor()}}, .context = context, .outer = comm});
    std::vector<double> anchor = doubles(weights), error[2];
    for (auto& each : error) each.assign(filled, 0);
    std::vector<double> now[2] = {anchor, anchor};
    for (int step = 1; step <= 3 * options.every; ++step) {
      for (int group = 0; group < 2; ++group) {
        const std::vector<double> move =
            uniform(static_cast<std::int64_t>(count), static_cast<std::uint64_t>(10 * step + group));
        for (std::size_t i = 0; i < count; ++i) now[group][i] += 0.01 * move[i];
      }
      kernels::copy_into(weights, tensor_of(context, now[comm.rank()], weights.shape()));
      const bool is_due = step % options.every == 0;
      EXPECT_EQ(strategy->after_step([] { return true; }), is_due);
      if (!is_due) continue;
      std::vector<double> mean(filled, 0);
      for (int group = 0; group < 2; ++group) {
        std::vector<double>& e = error[group];
        for (std::size_t i = 0; i < filled; ++i)
          e[i] = options.decay * e[i] + (i < count ? anchor[i] - now[group][i] : 0);
        for (std::size_t first = 0; first < filled; first += chunk) {
          const auto begin = e.begin() + static_cast<std::ptrdiff_t>(first);
          const std::vector<double> sent = sent_of({begin, begin + static_cast<std::ptrdiff_t>(chunk)}, options);
          for (std::size_t i = 0; i < chunk; ++i) {
            e[first + i] -= sent[i];
            mean[first + i] += sent[i] / 2;
          }
        }
      }
      for (std::size_t i = 0; i < count; ++i) anchor[i] -= options.rate * mean[i];
      EXPECT_LT(relative_error(doubles(weights), anchor), 1e-6) << "step " << step;
      const std::vector<double> own(error[comm.rank()].begin(), error[comm.rank()].begin() + count);
      EXPECT_LT(relative_error(doubles(strategy->state(0)[1].values), own), 1e-4) << "step " << step;
      for (auto& each : now) each = doubles(weights);
    }
  });
}

TEST(SparseOuterSteps, AreThoseOfTheirFormula) {
  expect_formula(kSparse);
  expect_formula(kSparseExact);
  expect_formula({.every = 1, .rate = 0.5, .decay = 1, .chunk = 60, .keep = 5, .bits = 32});
}

TEST(SparseOuterSteps, HaveAsMuchAtOnceAsTheirCostSays) {
  testing::expect_memory_of_cost([] { return make_sparse_outer_steps(kSparse); });
}

TEST(SparseOuterSteps, RefuseWhatMakesNoSense) {
  const auto refusal = [](const SparseOuterStepOptions& options) {
    return error_of([&] { make_sparse_outer_steps(options); });
  };
  constexpr std::int64_t kLongest = 1 << 20;
  EXPECT_EQ(refusal({.every = 1, .decay = 0, .chunk = 1, .keep = 1}), "");
  EXPECT_EQ(refusal({.decay = 1, .chunk = kLongest, .keep = kLongest, .bits = 32}), "");
  EXPECT_EQ(refusal({.every = 0}), "outer steps come every 1 step or more, got 0");
  EXPECT_EQ(refusal({.rate = 0}), "the outer rate is above 0, got 0");
  EXPECT_NE(refusal({.rate = INFINITY}), "");
  EXPECT_EQ(refusal({.decay = 1.25}), "the error's decay is from 0 to 1, got 1.25");
  EXPECT_EQ(refusal({.decay = -0.25}), "the error's decay is from 0 to 1, got -0.25");
  EXPECT_EQ(refusal({.chunk = 0}), "a chunk has 1 to 1048576 numbers, got 0");
  EXPECT_EQ(refusal({.chunk = kLongest + 1}), "a chunk has 1 to 1048576 numbers, got 1048577");
  EXPECT_EQ(refusal({.chunk = 8, .keep = 9}), "1 to 8 numbers of a chunk are sent, got 9");
  EXPECT_EQ(refusal({.chunk = 8, .keep = 0}), "1 to 8 numbers of a chunk are sent, got 0");
  EXPECT_EQ(refusal({.bits = 3}), "numbers are sent in 2 or 32 bits, got 3");
}

}  // namespace
}  // namespace keel
