// Every collective against a plain reference, for any ranks, counts and dtypes, in and out of place, over every
// transport: numbers, bytes, delays and ranks that fail before it.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/node_memory.h"
#include "keel/dist/comm/schedule.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;
using Numbers = std::vector<double>;

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8};
constexpr CombineOp kOps[] = {CombineOp::sum,     CombineOp::maximum, CombineOp::minimum,
                              CombineOp::product, CombineOp::mean,    CombineOp::pairwise_sum};

// One request as every rank makes it.
struct Request {
  int n = 1;
  Counts counts = {};  // of each rank's part
  DType dtype = DType::f32;
  CombineOp op = CombineOp::sum;
  int root = 0;
  bool in_place = false;

  std::int64_t whole() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  std::int64_t begin_of(int rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  }
  std::int64_t count_of(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
};

// The i-th element of the whole tensor of a rank: small, so that sums and products are exact in every dtype.
double number(int rank, std::int64_t i) { return static_cast<double>((rank * 2 + i * 3 + i / 7) % 4); }
Numbers numbers(int rank, std::int64_t begin, std::int64_t count) {
  Numbers values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(number(rank, begin + i));
  return values;
}
Numbers cut(const Numbers& values, std::int64_t begin, std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

double combined(double a, double b, CombineOp op) {
  switch (op) {
    case CombineOp::maximum: return std::max(a, b);
    case CombineOp::minimum: return std::min(a, b);
    case CombineOp::product: return a * b;
    default: return a + b;
  }
}
Numbers combined(const Request& q) {
  Numbers all = numbers(0, 0, q.whole());
  for (int r = 1; r < q.n; ++r)
    for (std::int64_t i = 0; i < q.whole(); ++i) {
      double& each = all[static_cast<std::size_t>(i)];
      each = combined(each, number(r, i), q.op);
    }
  if (q.op != CombineOp::mean) return all;
  for (double& each : all) {
    each = is_floating(q.dtype) && q.dtype != DType::f64
               ? static_cast<double>(static_cast<float>(each) / static_cast<float>(q.n))
               : each / q.n;
    if (!is_floating(q.dtype)) each = std::trunc(each);
  }
  return doubles(tensor_of(testing::context(1), all, {q.whole()}, q.dtype));  // rounded
}
Numbers gathered(const Request& q) {
  Numbers all;
  for (int r = 0; r < q.n; ++r) {
    const Numbers part = numbers(r, q.begin_of(r), q.count_of(r));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// A rank's tensors: of the whole, and its part, which in place lies there.
struct Tensors {
  Tensor whole, part;

  Tensors(const Request& q, int rank, const Numbers& in_whole, const Numbers& in_part) {
    const Context context = testing::context(1);
    whole = tensor_of(context, in_whole, {q.whole()}, q.dtype);
    const std::int64_t begin = q.begin_of(rank), count = q.count_of(rank);
    part = q.in_place ? whole.slice(0, begin, begin + count) : tensor_of(context, in_part, {count}, q.dtype);
  }
};
Numbers nothing(std::int64_t count) { return Numbers(static_cast<std::size_t>(count), 9); }

// A collective: asks for it and returns what this rank got, and says what that must be and what the rank sends.
struct Law {
  std::string_view name;
  bool adds;
  std::function<Numbers(Communicator&, const Request&)> ask;
  std::function<Numbers(int rank, const Request&)> expected;
  std::function<std::int64_t(int rank, const Request&)> sent;  // elements
};

std::int64_t sent_by_root(int rank, const Request& q) { return rank == q.root ? q.whole() - q.count_of(rank) : 0; }
std::int64_t sent_to_root(int rank, const Request& q) { return rank == q.root ? 0 : q.count_of(rank); }

const Law kLaws[] = {
    {"all_reduce", true,
     [](Communicator& comm, const Request& q) {
       const Tensor x = tensor_of(testing::context(1), numbers(comm.rank(), 0, q.whole()), {q.whole()}, q.dtype);
       comm.all_reduce(x, q.op).wait();
       return doubles(x);
     },
     [](int, const Request& q) { return combined(q); },
     [](int rank, const Request& q) {
       const std::int64_t own = part({0, q.whole()}, q.n, rank).count();
       return q.whole() - own + (q.n - 1) * own;
     }},
    {"reduce_scatter_v", true,
     [](Communicator& comm, const Request& q) {
       const Tensors x(q, comm.rank(), numbers(comm.rank(), 0, q.whole()), nothing(q.count_of(comm.rank())));
       comm.reduce_scatter_v(x.whole, x.part, q.counts, q.op).wait();
       return doubles(x.part);
     },
     [](int rank, const Request& q) { return cut(combined(q), q.begin_of(rank), q.count_of(rank)); },
     [](int rank, const Request& q) { return q.whole() - q.count_of(rank); }},
    {"all_gather_v", false,
     [](Communicator& comm, const Request& q) {
       Numbers before = nothing(q.whole());
       const Numbers own = numbers(comm.rank(), q.begin_of(comm.rank()), q.count_of(comm.rank()));
       if (q.in_place) std::copy(own.begin(), own.end(), before.begin() + q.begin_of(comm.rank()));
       const Tensors x(q, comm.rank(), before, own);
       comm.all_gather_v(x.part, x.whole, q.counts).wait();
       return doubles(x.whole);
     },
     [](int, const Request& q) { return gathered(q); },
     [](int rank, const Request& q) { return (q.n - 1) * q.count_of(rank); }},
    {"gather", false,
     [](Communicator& comm, const Request& q) {
       Numbers before = nothing(q.whole());
       const Numbers own = numbers(comm.rank(), q.begin_of(comm.rank()), q.count_of(comm.rank()));
       if (q.in_place) std::copy(own.begin(), own.end(), before.begin() + q.begin_of(comm.rank()));
       const Tensors x(q, comm.rank(), before, own);
       const bool is_root = comm.rank() == q.root;
       comm.gather(x.part, is_root ? x.whole : Tensor(), q.root, q.counts).wait();
       return is_root ? doubles(x.whole) : Numbers();
     },
     [](int rank, const Request& q) { return rank == q.root ? gathered(q) : Numbers(); }, sent_to_root},
    {"scatter", false,
     [](Communicator& comm, const Request& q) {
       const Tensors x(q, comm.rank(), numbers(q.root, 0, q.whole()), nothing(q.count_of(comm.rank())));
       comm.scatter(comm.rank() == q.root ? x.whole : Tensor(), x.part, q.root, q.counts).wait();
       return doubles(x.part);
     },
     [](int rank, const Request& q) { return numbers(q.root, q.begin_of(rank), q.count_of(rank)); }, sent_by_root},
    {"reduce", true,
     [](Communicator& comm, const Request& q) {
       const Context context = testing::context(1);
       const Tensor x = tensor_of(context, numbers(comm.rank(), 0, q.whole()), {q.whole()}, q.dtype);
       const bool is_root = comm.rank() == q.root;
       const Tensor out = !is_root ? Tensor() : q.in_place ? x : zeros(context, {q.whole()}, q.dtype);
       comm.reduce(x, out, q.root, q.op).wait();
       return is_root ? doubles(out) : Numbers();
     },
     [](int rank, const Request& q) { return rank == q.root ? combined(q) : Numbers(); },
     [](int rank, const Request& q) {
       if (q.whole() * static_cast<std::int64_t>(size_of(q.dtype)) <= 8'192) return rank == q.root ? 0 : q.whole();
       const std::int64_t own = part({0, q.whole()}, q.n, rank).count();
       return q.whole() - own + (rank == q.root ? 0 : own);
     }},
};

void hold(const Law& law, Communicator& comm, const Request& q) {
  SCOPED_TRACE(concat(law.name, " of ", q.whole(), ' ', q.dtype, " (", name_of(q.op), ") on rank ", comm.rank(), " of ",
                      q.n, ", root ", q.root, q.in_place ? ", in place" : ""));
  const std::int64_t before = comm.traffic().sent();
  EXPECT_TRUE(law.ask(comm, q) == law.expected(comm.rank(), q));
  EXPECT_EQ(comm.traffic().sent() - before, law.sent(comm.rank(), q) * static_cast<std::int64_t>(size_of(q.dtype)));
}

// Equal parts, unequal ones, some or all of them empty; those that travel with a signature, and larger ones.
std::vector<Counts> cuts(int n) {
  std::vector<Counts> all;
  for (const std::int64_t size : {0, 1, 3, 5'000}) all.emplace_back(n, size);
  for (const std::int64_t size : {5, 2'000}) {
    Counts uneven, one(static_cast<std::size_t>(n), 0);
    for (int r = 0; r < n; ++r) uneven.push_back(r % 3 == 1 ? 0 : size * (r + 1) - 3 * r);
    one[static_cast<std::size_t>(n - 1)] = size;
    all.push_back(uneven);
    all.push_back(one);
  }
  return all;
}

TEST(EveryCollective, GivesWhatAPlainReferenceSaysAndCountsItsBytes) {
  for (int n = 1; n <= 5; ++n)
    for (const bool shared : {true, false})
      on_ranks(
          n,
          [&](Communicator& comm) {
            int root = 0;
            for (const Law& law : kLaws)
              for (const DType dtype : kTypes)
                for (const Counts& counts : cuts(n))
                  for (const CombineOp op : law.adds ? std::span<const CombineOp>(kOps) : std::span(kOps).first(1)) {
                    const bool in_place = ++root % 2 == 0;
                    hold(law, comm, {n, counts, dtype, op, root / 2 % n, in_place});
                  }
          },
          {.shared_memory = shared});
}

// In pieces where ranks have no memory in common.
TEST(EveryCollective, GivesItForMoreThanABufferOfTheNode) {
  constexpr auto kBuffer = static_cast<std::int64_t>(NodeArea::kBuffer);
  for (const int n : {2, 3})
    on_ranks(n, [&](Communicator& comm) {
      for (const Law& law : kLaws)
        for (const bool in_place : {false, true}) {
          Counts counts(static_cast<std::size_t>(n), 11);
          counts[1] = kBuffer + 7;
          hold(law, comm, {n, counts, DType::u8, CombineOp::maximum, n - 1, in_place});
        }
    });
}

// By every algorithm the same numbers, also where the root is another rank than the one that an algorithm prefers.
TEST(EveryCollective, GivesItByEveryAlgorithm) {
  for (const Algorithm* algorithm : algorithms())
    for (const int n : {2, 3, 4, 5}) {
      std::vector<int> nodes;
      for (int r = 0; r < n; ++r) nodes.push_back(r / 2);
      on_ranks(n,
               [&](Communicator& comm) {
                 for (const Law& law : kLaws)
                   for (const Counts& counts : cuts(n)) {
                     const CombineOp ops[] = {
                         CombineOp::sum, law.adds ? CombineOp::mean : CombineOp::sum,
                         law.adds && adds_pairwise(*algorithm) ? CombineOp::pairwise_sum : CombineOp::sum};
                     for (const CombineOp op : ops)
                       for (const DType dtype : {DType::f32, DType::bf16}) {
                         const Request q{n, counts, dtype, op, n - 1, false};
                         EXPECT_TRUE(law.ask(comm, q) == law.expected(comm.rank(), q))
                             << law.name << ' ' << algorithm->name;
                       }
                   }
               },
               {.algorithm = std::string(algorithm->name), .nodes = nodes});
    }
}

TEST(EveryCollective, HoldsAmongRanksThatComeLate) {
  for (const int n : {2, 3, 4})
    for (const bool shared : {true, false})
      on_ranks(n,
               [&](Communicator& direct) {
                 DelayedCommunicator comm(direct, 3, std::chrono::microseconds(400));
                 for (const Law& law : kLaws)
                   for (const Counts& counts : cuts(n))
                     hold(law, comm, {n, counts, DType::f32, CombineOp::sum, n / 2, true});
               },
               {.shared_memory = shared});
}

TEST(EveryCollective, EndsForAllWhereARankFailsBeforeIt) {
  KEEL_NEEDS_RANKS(3);
  for (const Law& law : kLaws)
    for (const bool shared : {true, false})
      for (int failing = 0; failing < 3; ++failing) {
        const auto told = messages(3,
                                   [&](Communicator& comm) {
                                     if (comm.rank() == failing) throw Error("out of ink");
                                     const Request q{3, {4, 0, 9}, DType::f32, CombineOp::sum, 0, false};
                                     law.ask(comm, q);
                                     comm.barrier();  // a rank that only sends may be through before it hears
                                   },
                                   {.shared_memory = shared});
        for (int r = 0; r < 3; ++r) {
          const std::string& text = told[static_cast<std::size_t>(r)];
          if (r == failing) EXPECT_EQ(text, "out of ink");
          else EXPECT_TRUE(is_heard(text, concat("rank ", failing, " failed: out of ink"))) << law.name;
        }
      }
}

// Ranks that name other counts or another root, of the same tensor.
TEST(EveryCollective, IsRefusedOnAllRanksWhereOneNamesOtherCountsOrAnotherRoot) {
  KEEL_NEEDS_RANKS(3);
  for (const Law& law : kLaws)
    for (const bool shared : {true, false})
      for (const bool by_counts : {true, false}) {
        const bool has_root = law.name == "gather" || law.name == "scatter" || law.name == "reduce";
        if (by_counts ? law.name == "reduce" || law.name == "all_reduce" : !has_root) continue;
        const auto told = messages(3,
                                   [&](Communicator& comm) {
                                     Request q{3, {2, 3, 4}, DType::f32, CombineOp::sum, 0, false};
                                     if (comm.rank() == 2 && by_counts) q.counts = {3, 2, 4};
                                     if (comm.rank() == 2 && !by_counts) q.root = 1;
                                     law.ask(comm, q);
                                   },
                                   {.shared_memory = shared});
        for (const std::string& text : told)
          EXPECT_NE(text.find("ranks ask for different collectives"), std::string::npos) << law.name << ": " << text;
      }
}

TEST(EveryCollective, RefusesTensorsThatDoNotFit) {
  KEEL_NEEDS_RANKS(2);
  on_ranks(2, [](Communicator& comm) {
    const Context context = testing::context(1);
    const Tensor four = zeros(context, {4}), three = zeros(context, {3});
    const bool is_root = comm.rank() == 0;
    EXPECT_THROW(comm.reduce(four, is_root ? three : Tensor(), 2), Error);
    if (is_root) {
      EXPECT_THROW(comm.reduce(four, three, 0), Error);
      EXPECT_THROW(comm.gather(four, four, 0), Error);
      EXPECT_THROW(comm.scatter(four, four, 0), Error);
      EXPECT_THROW(comm.gather(four, {}, 0), Error);
    }
    EXPECT_THROW(comm.gather(four, {}, 0, {3, 3}), Error);
    EXPECT_THROW(comm.scatter({}, four, 0, {4}), Error);
    EXPECT_THROW(comm.all_gather_v(three, four, {1, 3, 0}), Error);
    EXPECT_THROW(comm.reduce_scatter_v(four, three, {2, 2}), Error);
    comm.barrier();
  });
}

// Every rank sends to all others before it receives, or the other way round.
TEST(SendAndReceive, NeverDeadlocksWhateverTheOrder) {
  for (const int n : {2, 3, 4})
    on_ranks(n, [&](Communicator& comm) {
      const Context context = testing::context(1);
      for (const std::int64_t count : {0, 1, 30'000}) {
        std::vector<PeerMessage> sends, receives;
        for (int peer = 0; peer < n; ++peer) {
          if (peer == comm.rank()) continue;
          for (const int again : {0, 1}) {
            sends.push_back(
                {PeerMessage::to, peer,
                 tensor_of(context, Numbers(static_cast<std::size_t>(count), 10 * comm.rank() + again), {count})});
            receives.push_back({PeerMessage::from, peer, zeros(context, {count})});
          }
        }
        std::vector<PeerMessage> all = comm.rank() % 2 == 0 ? sends : receives;
        const std::vector<PeerMessage>& rest = comm.rank() % 2 == 0 ? receives : sends;
        all.insert(all.end(), rest.begin(), rest.end());
        const Work work = comm.send_and_receive(all);
        work.wait();
        EXPECT_TRUE(work.has_finished());
        for (std::size_t i = 0; i < receives.size(); ++i)
          EXPECT_EQ(doubles(receives[i].x),
                    Numbers(static_cast<std::size_t>(count), 10 * receives[i].peer + static_cast<int>(i % 2)));
      }
      comm.send_and_receive({}).wait();
    });
}

}  // namespace
}  // namespace keel
