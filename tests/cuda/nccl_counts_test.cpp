// Collectives between devices whose parts differ in length.

#include "keel/dist/comm/elements_sent.h"
#include "keel/dist/comm/schedule.h"
#include "tests/cuda/nccl_ranks.h"

namespace keel {
namespace {

using namespace keel::testing;

class NcclCounts : public NcclRanks {};

// Rank r sends i + 1 numbers to rank i, and nothing to itself.
TEST_F(NcclCounts, MovePartsOfAnyLengthsByAllToAllV) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n,
               [&](const DeviceRank& own) {
                 std::vector<std::int64_t> sends, receives;
                 std::vector<double> in, expected;
                 for (int i = 0; i < n; ++i) {
                   sends.push_back(i == own.rank() ? 0 : i + 1);
                   receives.push_back(i == own.rank() ? 0 : own.rank() + 1);
                   in.insert(in.end(), static_cast<std::size_t>(sends.back()), 10 * own.rank() + i);
                   expected.insert(expected.end(), static_cast<std::size_t>(receives.back()), 10 * i + own.rank());
                 }
                 for (const DType dtype : kAllTypes) {
                   const Tensor given = tensor_of(own.context, in, {static_cast<std::int64_t>(in.size())}, dtype);
                   const Tensor out = zeros(own.context, {static_cast<std::int64_t>(expected.size())}, dtype);
                   const Traffic before = own.devices.traffic();
                   own.devices.all_to_all_v(given, out, sends, receives).wait();
                   EXPECT_EQ(doubles(out), expected);
                   EXPECT_EQ(own.devices.traffic().sent() - before.sent(), static_cast<std::int64_t>(given.bytes()));
                 }
               },
               {.nccl = {.check_every = 1}});
}

// What devices give is what processors give, for the root and for all, in the order of ranks or of NCCL.
TEST_F(NcclCounts, GiveWhatProcessorsGiveToARootAndByCounts) {
  for (int n = 1; n <= most(); ++n)
    for (const ReduceOrder order : {ReduceOrder::written, ReduceOrder::fast})
      on_devices(
          n,
          [&](const DeviceRank& own) {
            const Context host = context(1);
            const int root = n / 2, rank = own.rank();
            for (const DType dtype : kAllTypes)
              for (const std::int64_t count : {0, 1, 3'000}) {
                Counts counts;
                for (int r = 0; r < n; ++r) counts.push_back(r % 2 == 0 ? count : count / 2);
                const Cut cut(0, n, counts);
                const std::int64_t part = cut.of(rank).count(), whole = cut.count();
                const auto given = [&](const Context& context, std::int64_t size) {
                  std::vector<double> values;
                  for (std::int64_t i = 0; i < size; ++i) values.push_back(static_cast<double>((rank + i) % 4));
                  return tensor_of(context, values, {size}, dtype);
                };
                const auto both = [&](const char* name, std::int64_t size, const auto& ask) {
                  const Tensor there = zeros(own.context, {size}, dtype), here = zeros(host, {size}, dtype);
                  ask(own.devices, own.context, there).wait();
                  ask(own.hosts, host, here).wait();
                  EXPECT_EQ(doubles(there), doubles(here)) << name << ' ' << dtype << ' ' << count << " of " << n;
                };
                for (const CombineOp op : {CombineOp::sum, CombineOp::product, CombineOp::mean}) {
                  both("reduce", whole, [&](Communicator& ranks, const Context& context, const Tensor& out) {
                    return ranks.reduce(given(context, whole), out, root, op);
                  });
                  both("reduce_scatter_v", part, [&](Communicator& ranks, const Context& context, const Tensor& out) {
                    return ranks.reduce_scatter_v(given(context, whole), out, counts, op);
                  });
                }
                both("gather", whole, [&](Communicator& ranks, const Context& context, const Tensor& out) {
                  return ranks.gather(given(context, part), out, root, counts);
                });
                both("scatter", part, [&](Communicator& ranks, const Context& context, const Tensor& out) {
                  return ranks.scatter(given(context, whole), out, root, counts);
                });
                both("all_gather_v", whole, [&](Communicator& ranks, const Context& context, const Tensor& out) {
                  return ranks.all_gather_v(given(context, part), out, counts);
                });
              }
          },
          {.nccl = {.order = order, .check_every = 1}});
}

// By every algorithm, in both orders of sums, of counts that ranks divide and others.
TEST_F(NcclCounts, SendWhatAPlanCounts) {
  for (int n = 2; n <= most(); ++n)
    for (const Algorithm* algorithm : algorithms())
      for (const ReduceOrder order : {ReduceOrder::written, ReduceOrder::fast})
        on_devices(n,
                   [&](const DeviceRank& own) {
                     using Nccl = CollectiveRoute::Nccl;
                     const CollectiveRoute route{algorithm->name,
                                                 order == ReduceOrder::fast ? Nccl::gathers_and_adds : Nccl::gathers};
                     for (const std::int64_t count : {0, 1, 12, 13, 3'001}) {
                       const Tensor whole = zeros(own.context, {count});
                       const Tensor shard = zeros(own.context, {part({0, count}, n, own.rank()).count()});
                       const auto expect = [&](CollectiveKind kind, const auto& ask) {
                         const std::int64_t before = own.devices.traffic().sent();
                         ask().wait();
                         EXPECT_EQ(own.devices.traffic().sent() - before,
                                   4 * elements_sent(route, kind, {.rank = own.rank(), .size = n, .count = count}))
                             << algorithm->name << ' ' << name_of(kind) << " of " << count << " by " << n;
                       };
                       expect(CollectiveKind::all_reduce, [&] { return own.devices.all_reduce(whole); });
                       expect(CollectiveKind::reduce_scatter, [&] { return own.devices.reduce_scatter(whole, shard); });
                       expect(CollectiveKind::all_gather, [&] { return own.devices.all_gather(shard, whole); });
                       if (count % n != 0) continue;
                       expect(CollectiveKind::all_to_all,
                              [&] { return own.devices.all_to_all(whole, zeros(own.context, {count})); });
                     }
                   },
                   {.nccl = {.algorithm = std::string(algorithm->name), .order = order}});
}

}  // namespace
}  // namespace keel
