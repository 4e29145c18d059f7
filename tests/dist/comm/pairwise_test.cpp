// Sums along a balanced binary tree over the ranks: the same bits as an independent one, by every algorithm that can,
// and by fewer ranks that bring partial sums.

#include <gtest/gtest.h>

#include "keel/dist/comm/algorithms.h"
#include "tests/dist/comm/ranks.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;
using Floats = std::vector<float>;

constexpr std::int64_t kLong = 3'001;  // more than what travels with a signature

// Of any exponent, so that another order of additions is another number.
Floats leaf(int number, std::int64_t count) {
  const std::vector<double> values =
      doubles(uniform_tensor(testing::context(1), {count}, static_cast<std::uint64_t>(number), DType::f32, -1, 1));
  Floats all(values.begin(), values.end());
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] *= static_cast<float>(1 << (i * 5 + static_cast<std::size_t>(number) * 3) % 23);
  return all;
}
Floats subtree(int first, int last, std::int64_t count) {
  if (last - first == 1) return leaf(first, count);
  int half = 1;
  while (2 * half < last - first) half *= 2;
  Floats sum = subtree(first, first + half, count);
  const Floats other = subtree(first + half, last, count);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}
Tensor given(const Context& context, const Floats& values) {
  return tensor_of(context, {values.begin(), values.end()}, {std::ssize(values)});
}
std::vector<double> seen(const Floats& values) { return {values.begin(), values.end()}; }

TEST(PairwiseSums, AreThoseOfAnIndependentTreeForAnyRanksByEveryAlgorithmThatCan) {
  for (const Algorithm* const algorithm : algorithms())
    for (int n = 1; n <= 8; ++n)
      for (const bool shared : {true, false})
        on_ranks(n,
                 [&](Communicator& comm) {
                   const Context context = testing::context(1);
                   for (const std::int64_t count : {std::int64_t{9}, kLong}) {
                     const Tensor x = given(context, leaf(comm.rank(), count));
                     if (!adds_pairwise(*algorithm)) {
                       EXPECT_NE(error_of([&] {
                                   comm.all_reduce(x, CombineOp::pairwise_sum);
                                 }).find("pairs of ranks are added by direct, tree, flat"),
                                 std::string::npos)
                           << algorithm->name;
                       continue;
                     }
                     const std::vector<double> sum = seen(subtree(0, n, count));
                     const Span mine = part({0, count}, n, comm.rank());
                     const Tensor shard = zeros(context, {mine.count()});
                     comm.reduce_scatter(x, shard, CombineOp::pairwise_sum).wait();
                     EXPECT_EQ(doubles(shard), (std::vector<double>{sum.begin() + mine.begin, sum.begin() + mine.end}));
                     comm.all_reduce(x, CombineOp::pairwise_sum).wait();
                     EXPECT_EQ(doubles(x), sum) << algorithm->name << ' ' << n;
                   }
                 },
                 {.algorithm = std::string(algorithm->name), .shared_memory = shared});
}

TEST(PairwiseSums, OfFewerRanksThatBringPartialSumsHaveTheSameBits) {
  const std::vector<double> sum = seen(subtree(0, 8, kLong));
  for (const int n : {1, 2, 4, 8})
    on_ranks(n, [&](Communicator& comm) {
      const int each = 8 / n;
      const Tensor x = given(testing::context(1), subtree(comm.rank() * each, (comm.rank() + 1) * each, kLong));
      comm.all_reduce(x, CombineOp::pairwise_sum).wait();
      EXPECT_EQ(doubles(x), sum) << n;
    });
}

}  // namespace
}  // namespace keel
