// The exact check: numbers whose sums are exact in every dtype, and what it finds.

#include "keel/dist/lab/known_numbers.h"

#include <gtest/gtest.h>

#include <set>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/dist/lab/measurement.h"
#include "tests/support.h"

namespace keel::lab {
namespace {

using testing::kAllTypes;

// Whole numbers up to here are exact: 8, 11 and 24 bits of significand; of u8 255 is what memory is spoiled with.
std::int64_t largest_exact(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 256;
    case DType::f16: return 2048;
    case DType::u8: return 254;
    default: return std::int64_t{1} << 24;
  }
}

TEST(KnownNumbers, SumsAreExactInEveryDtypeForAnyNumberOfRanks) {
  for (const DType dtype : kAllTypes)
    for (const int ranks : {1, 2, 3, 8, 84, 85, 86, 100, 255, 256, 257, 1000, 10'000}) {
      const KnownNumbers numbers(dtype, ranks);
      EXPECT_LE(numbers.largest_sum(), largest_exact(dtype)) << dtype << ' ' << ranks;
      for (std::int64_t i = 0; i < 20; ++i) {
        std::int64_t sum = 0;
        for (int r = 0; r < ranks; ++r) {
          EXPECT_GE(numbers.of(r, i), 0);
          sum += numbers.of(r, i);
        }
        EXPECT_EQ(numbers.sum(i), sum);
        EXPECT_LE(sum, numbers.largest_sum());
      }
    }
}

// In every dtype, for any number of ranks: the exact result is the one that the dtype holds.
TEST(KnownNumbers, OfEveryOperationHaveResultsThatTheDtypeHolds) {
  for (const DType dtype : kAllTypes)
    for (const int ranks : {1, 2, 3, 9, 100, 1'000})
      for (const CombineOp op : {CombineOp::maximum, CombineOp::minimum, CombineOp::product}) {
        const KnownNumbers numbers(dtype, ranks, 3, op);
        std::set<double> seen;
        for (std::int64_t i = 0; i < 50; ++i) {
          double expected = static_cast<double>(numbers.of(0, i));
          for (int r = 1; r < ranks; ++r) {
            const auto next = static_cast<double>(numbers.of(r, i));
            expected = op == CombineOp::maximum   ? std::max(expected, next)
                       : op == CombineOp::minimum ? std::min(expected, next)
                                                  : expected * next;
          }
          EXPECT_EQ(numbers.result(i), expected);
          EXPECT_LE(expected, static_cast<double>(largest_exact(dtype)));
          seen.insert(expected);
        }
        if (op == CombineOp::product) { EXPECT_GT(seen.size(), 1u) << dtype << ' ' << ranks; }
      }
  const KnownNumbers means(DType::i32, 3, 0, CombineOp::mean), halves(DType::f32, 3, 0, CombineOp::mean);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(means.result(i), static_cast<double>(means.sum(i) / 3));
    EXPECT_EQ(halves.result(i), static_cast<double>(static_cast<float>(halves.sum(i)) / 3.0f));
  }
}

TEST(KnownNumbers, DifferBetweenElementsRanksAndCalls) {
  for (const int ranks : {2, 3, 100}) {
    const KnownNumbers one(DType::bf16, ranks, 1), other(DType::bf16, ranks, 2);
    int elements = 0, brought = 0, calls = 0;
    for (std::int64_t i = 0; i < 1000; ++i) {
      elements += one.of(0, i) != one.of(0, i + 1);
      brought += one.of(0, i) != one.of(1, i);
      calls += one.of(0, i) != other.of(0, i);
    }
    for (const int differ : {elements, brought, calls}) EXPECT_GT(differ, 300) << ranks;
  }
}

// Acceptance check 4 of the exact check: every algorithm, 1 to 9 ranks, counts 0, 1, n - 1, n + 1 and a prime.
class ExactCheck : public ::testing::TestWithParam<std::string_view> {};

TEST_P(ExactCheck, PassesForOneToNineRanksAndOddCounts) {
  for (int n = 1; n <= 9; ++n)
    run_ranks(n, [&](Communicator& ranks) {
      const auto measured = ranks.regroup({.algorithm = std::string(GetParam()), .shared_memory = n % 2 == 0});
      const Context context = testing::context(1);
      for (const Exercise& exercise : exercises())
        for (const std::int64_t wish : {0, 1, n - 1, n + 1, 1009})
          for (const DType dtype : {DType::f32, DType::bf16}) {
            if (dtype == DType::bf16 && n % 3 != 0) continue;
            const std::int64_t count = count_in(exercise, wish * static_cast<std::int64_t>(size_of(dtype)), dtype, n);
            if (exercise.kind == CollectiveKind::send && n == 1) continue;
            const Tensor a = zeros(context, {1200}, dtype), b = zeros(context, {1200}, dtype);
            for (const bool in_place : {false, true}) {
              if (!(in_place ? exercise.in_place : exercise.out_of_place)) continue;
              for (int op = 0; op < (exercise.adds() ? kCombineOps : 1); ++op) {
                const CallOptions options{static_cast<CombineOp>(op), (n + op) / 2 % n};
                if (options.op == CombineOp::pairwise_sum && !adds_pairwise(find_algorithm(GetParam()))) continue;
                const Call call = make_call(exercise, ranks, count, in_place, a, b, options);
                const KnownNumbers numbers(dtype, n, static_cast<std::uint32_t>(wish), options.op);
                prepare(call, numbers);
                make(*measured, call);
                EXPECT_EQ(count_wrong(call, numbers), 0)
                    << exercise.name << ' ' << name_of(options.op) << ' ' << dtype << " of " << count << " among " << n
                    << (in_place ? " in place" : "");
              }
            }
          }
    });
}
INSTANTIATE_TEST_SUITE_P(Algorithms, ExactCheck,
                         ::testing::Values("direct", "flat", "ring", "tree", "halving", "hierarchical"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ExactCheck, CountsAllElementsOfACallThatNeverHappened) {
  run_ranks(3, [](Communicator& ranks) {
    const Context context = testing::context(1);
    for (const Exercise& exercise : exercises())
      for (const DType dtype : kAllTypes) {
        const Tensor a = zeros(context, {12}, dtype), b = zeros(context, {12}, dtype);
        const Call call = make_call(exercise, ranks, 12, !exercise.out_of_place, a, b);
        const KnownNumbers numbers(dtype, 3);
        prepare(call, numbers);
        const bool has_it_anyway = exercise.kind == CollectiveKind::broadcast && ranks.rank() == 0;
        EXPECT_EQ(call.output.numel() == 0,
                  exercise.kind == CollectiveKind::barrier ||
                      ((exercise.name == "gather" || exercise.name == "reduce") && ranks.rank() != 0))
            << exercise.name;
        EXPECT_EQ(count_wrong(call, numbers), has_it_anyway ? 0 : call.output.numel()) << exercise.name << ' ' << dtype;
      }
  });
}

// Acceptance check 3: one corrupted element on one rank is one wrong element, wherever it is.
TEST(ExactCheck, FindsExactlyTheElementThatWasCorrupted) {
  constexpr int n = 3;
  run_ranks(n, [](Communicator& ranks) {
    const Context context = testing::context(1);
    const std::vector<double> clocks(n);
    for (const Exercise& exercise : exercises())
      for (const DType dtype : kAllTypes)
        for (int bad = 0; bad < n; ++bad) {
          // Sends have no output; of the pair, the receive is corrupted.
          CorruptedCommunicator corrupted(ranks, bad, 2);
          const Tensor a = zeros(context, {12}, dtype), b = zeros(context, {12}, dtype);
          const Call call = make_call(exercise, ranks, 12, !exercise.out_of_place, a, b, {.root = bad});
          std::int64_t corrupted_ones = 0;  // rank 0's part of uneven ones is shorter, and a barrier has none
          for (const std::int64_t gotten : gather_values(ranks, ranks.rank() == bad ? call.output.numel() : 0))
            corrupted_ones += gotten > 2;
          EXPECT_EQ(corrupted_ones,
                    exercise.kind != CollectiveKind::barrier && !(exercise.name == "reduce_scatter_v" && bad == 0))
              << exercise.name;
          const MeasureOptions options{.calls = 1, .warmup = 1, .seconds = 0};
          const Timing timing = measure(corrupted, ranks, call, options, clocks);
          ASSERT_TRUE(timing.wrong.has_value());
          EXPECT_EQ(*timing.wrong, corrupted_ones) << exercise.name << ' ' << dtype << " on rank " << bad;
          EXPECT_EQ(*measure(ranks, ranks, call, options, clocks).wrong, 0);
        }
  });
}

}  // namespace
}  // namespace keel::lab
