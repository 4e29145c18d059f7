// Ranks that ask for different collectives: every one of them is told, before any result is written.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/schedule.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(Disagreement, IsToldToEveryRankBeforeAnyResultIsWritten) {
  KEEL_NEEDS_RANKS(4);
  const auto told = messages(4, [](Communicator& comm) {
    const Tensor x = tensor_of(testing::context(1), std::vector<double>(100, 5), {100});
    try {
      comm.all_reduce(x.slice(0, 0, comm.rank() == 2 ? 99 : 100)).wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      EXPECT_EQ(doubles(x), std::vector<double>(100, 5));
      throw;
    }
  });
  for (const std::string& text : told)
    EXPECT_TRUE(text.starts_with(
        "ranks ask for different collectives as number 0: rank 0 for all_reduce of 100 f32 (sum, direct), rank 2 "
        "for all_reduce of 99 f32 (sum, direct); rank "))
        << text;
}

// Ranks that gather units of one size in different orders.
TEST(Disagreement, AboutWhatTensorsOfOneSizeAreIsFound) {
  KEEL_NEEDS_RANKS(3);
  const auto told = messages(3, [](Communicator& comm) {
    const Context context = testing::context(1);
    const Tensor mine = zeros(context, {2}), all = zeros(context, {6});
    for (const int unit : {0, 1}) comm.all_gather(mine, all, comm.rank() == 2 ? 2 - unit : 1 + unit).wait();
  });
  for (const std::string& text : told)
    EXPECT_NE(text.find("rank 0 for all_gather of 6 f32 about 1, rank 2 for all_gather of 6 f32 about 2"),
              std::string::npos)
        << text;
}

TEST(Disagreement, BetweenSenderAndReceiverIsToldToBoth) {
  KEEL_NEEDS_RANKS(2);
  const auto told = messages(2, [](Communicator& comm) {
    const Tensor x = zeros(testing::context(1), {10});
    comm.rank() == 0 ? comm.send(x, 1).wait() : comm.receive(x.slice(0, 0, 9), 0).wait();
  });
  for (const std::string& text : told) EXPECT_NE(text.find("different"), std::string::npos) << text;
}

// Ranks run the same list of collectives, and one rank's has a random change: every rank hears of it, and no result is
// wrong without an error.
TEST(Disagreement, NeverGivesAWrongResultInAThousandRandomCases) {
  struct Request {
    CollectiveKind kind;
    std::int64_t count;
    DType dtype;
    CombineOp op;
    int root;
  };
  std::mt19937 engine(7);
  const auto any = [&](int below) { return static_cast<int>(engine() % static_cast<unsigned>(below)); };
  const auto random_request = [&](int n) {
    constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                         CollectiveKind::all_gather, CollectiveKind::broadcast,
                                         CollectiveKind::barrier,    CollectiveKind::reduce,
                                         CollectiveKind::gather,     CollectiveKind::scatter};
    constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i32};
    return Request{kKinds[any(8)], 1 + any(40), kTypes[any(4)], any(2) == 0 ? CombineOp::sum : CombineOp::maximum,
                   any(n)};
  };
  const auto same = [](const Request& a, const Request& b) {
    if (a.kind != b.kind) return false;
    if (a.kind == CollectiveKind::barrier) return true;
    if (a.count != b.count || a.dtype != b.dtype) return false;
    const CollectiveTraits& traits = traits_of(a.kind);
    return (!traits.has_root || a.root == b.root) && (!traits.adds || a.op == b.op);
  };
  for (int round = 0; round < 1'000; ++round) {
    const int n = 2 + any(3), odd_one = any(n);
    std::vector<Request> common;
    for (int i = 0, length = 1 + any(4); i < length; ++i) common.push_back(random_request(n));
    std::vector<Request> odd = common;
    const auto where = static_cast<std::size_t>(any(static_cast<int>(odd.size())));
    switch (any(3)) {
      case 0: odd[where] = random_request(n); break;
      case 1: odd.erase(odd.begin() + static_cast<std::ptrdiff_t>(where)); break;
      default: odd.insert(odd.begin() + static_cast<std::ptrdiff_t>(where), random_request(n));
    }
    std::size_t agreed = 0;
    while (agreed < common.size() && agreed < odd.size() && same(common[agreed], odd[agreed])) ++agreed;
    const bool differs = agreed < common.size() || agreed < odd.size();
    const auto told = messages(n,
                               [&](Communicator& comm) {
                                 const Context context = testing::context(1);
                                 std::size_t done = 0;
                                 for (const Request& q : comm.rank() == odd_one ? odd : common) {
                                   const Span shard = part({0, q.count}, n, comm.rank());
                                   const Tensor whole =
                                       tensor_of(context, std::vector<double>(static_cast<std::size_t>(q.count), 1),
                                                 {q.count}, q.dtype);
                                   const Tensor mine = zeros(context, {shard.count()}, q.dtype);
                                   const double sum = q.op == CombineOp::sum ? n : 1;
                                   Tensor result = whole;
                                   double value = sum;
                                   switch (q.kind) {
                                     case CollectiveKind::all_reduce: comm.all_reduce(whole, q.op).wait(); break;
                                     case CollectiveKind::reduce_scatter:
                                       comm.reduce_scatter(whole, result = mine, q.op).wait();
                                       break;
                                     case CollectiveKind::all_gather:
                                       comm.all_gather(mine, whole).wait(), value = 0;
                                       break;
                                     case CollectiveKind::broadcast:
                                       comm.broadcast(whole, q.root).wait(), value = 1;
                                       break;
                                     case CollectiveKind::reduce:
                                       comm.reduce(whole, whole, q.root, q.op).wait();
                                       if (comm.rank() != q.root) value = 1;
                                       break;
                                     case CollectiveKind::gather: {
                                       const Tensor all = zeros(context, {q.count * n}, q.dtype);
                                       comm.gather(whole, all, q.root).wait();
                                       value = comm.rank() == q.root ? 1 : 0;
                                       result = all;
                                       break;
                                     }
                                     case CollectiveKind::scatter:
                                       result = zeros(context, {q.count}, q.dtype);
                                       comm.scatter(zeros(context, {q.count * n}, q.dtype), result, q.root).wait();
                                       value = 0;
                                       break;
                                     default: comm.barrier(), result = {};
                                   }
                                   if (result.defined()) {
                                     for (const double got : doubles(result)) ASSERT_EQ(got, value);
                                   }
                                   ASSERT_LT(done, agreed) << "a collective that ranks did not agree on has succeeded";
                                   ++done;
                                 }
                               },
                               {.timeout = std::chrono::seconds(20)});
    if (told.empty()) continue;
    const auto silent = std::count(told.begin(), told.end(), "");
    // A rank whose list has ended may have left before the others found out.
    if (!differs) {
      EXPECT_EQ(silent, n);
    } else if (agreed < common.size() && agreed < odd.size()) {
      EXPECT_EQ(silent, 0) << "round " << round;
    } else {
      EXPECT_LT(silent, n) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace keel
