// The collectives of the MPI library as a communicator: keel's results, for whole numbers, in and out of place.

#include "keel/dist/comm/mpi_collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "keel/dist/comm/schedule.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/mpi/mpi_ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Calls f(MPI's, keel's) on as many processes as the program has.
void on_both(const std::function<void(Communicator&, Communicator&)>& f) {
  on_first_processes(processes(), [&](MPI_Comm comm) {
    const auto own = make_mpi_communicator(comm);
    const auto library = make_mpi_collectives(comm);
    f(*library, *own);
    own->barrier();
  });
}

Tensor whole_numbers(const Context& context, int rank, std::int64_t count, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((rank + 1) * (i % 5)));
  return tensor_of(context, values, {count}, dtype);
}

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8};

TEST(MpiCollectives, GiveWhatKeelsOwnGiveForAnyCountAndType) {
  on_both([](Communicator& library, Communicator& own) {
    const Context context = testing::context(1);
    const int n = own.size(), rank = own.rank();
    for (const DType dtype : kTypes)
      for (const std::int64_t count : {0, 1, n - 1, n, n + 1, 13 * n}) {
        SCOPED_TRACE(concat(count, ' ', dtype));
        const Span mine = part({0, count}, n, rank);
        const auto given = [&] { return whole_numbers(context, rank, count, dtype); };
        const auto both = [&](const std::function<Tensor(Communicator&)>& run) {
          EXPECT_EQ(doubles(run(library)), doubles(run(own)));
        };
        const auto move_all = [&](Communicator& ranks) {
          const Tensor all = zeros(context, {count}, dtype);
          ranks.all_gather(given().slice(0, mine.begin, mine.end), all).wait();
          return all;
        };
        both(move_all);
        both([&](Communicator& ranks) {
          const Tensor all = given();
          ranks.all_gather(all.slice(0, mine.begin, mine.end), all).wait();
          return all;
        });
        both([&](Communicator& ranks) {
          const Tensor x = given();
          ranks.broadcast(x, n - 1).wait();
          return x;
        });
        if (count % n == 0)
          both([&](Communicator& ranks) {
            const Tensor x = zeros(context, {count}, dtype);
            ranks.all_to_all(given(), x).wait();
            return x;
          });
        both([&](Communicator& ranks) {
          // Rank r sends (r + i) mod 3 numbers to rank i.
          std::vector<std::int64_t> counts;
          std::int64_t sum = 0;
          for (int i = 0; i < n; ++i) sum += counts.emplace_back(count == 0 ? 0 : (rank + i) % 3);
          const Tensor x = zeros(context, {sum}, dtype);
          ranks.all_to_all_v(whole_numbers(context, rank, sum, dtype), x, counts, counts).wait();
          return x;
        });
        const int root = n / 2;
        // Rank r's part has `count` numbers, and every second rank's one more.
        for (const std::int64_t more : {0, 1}) {
          Counts counts;
          std::int64_t begin = 0, sum = 0;
          for (int r = 0; r < n; ++r) {
            if (r == rank) begin = sum;
            sum += counts.emplace_back(count + more * (r % 2));
          }
          const std::int64_t own = counts[static_cast<std::size_t>(rank)];
          for (const bool in_place : {false, true}) {
            const auto part_of = [&](const Tensor& all) {
              return in_place ? all.slice(0, begin, begin + own) : whole_numbers(context, rank, own, dtype);
            };
            both([&](Communicator& ranks) {
              const Tensor all = whole_numbers(context, rank, sum, dtype);
              ranks.gather(part_of(all), all, root, counts).wait();
              return all;
            });
            both([&](Communicator& ranks) {
              const Tensor all = whole_numbers(context, rank, sum, dtype), own_part = part_of(all);
              ranks.scatter(all, own_part, root, counts).wait();
              return own_part;
            });
            both([&](Communicator& ranks) {
              const Tensor all = whole_numbers(context, rank, sum, dtype);
              ranks.all_gather_v(part_of(all), all, counts).wait();
              return all;
            });
            if (dtype == DType::bf16 || dtype == DType::f16) continue;
            both([&](Communicator& ranks) {
              const Tensor all = whole_numbers(context, rank, sum, dtype), own_part = part_of(all);
              ranks.reduce_scatter_v(all, own_part, counts).wait();
              return own_part;
            });
            both([&](Communicator& ranks) {
              const Tensor x = whole_numbers(context, rank, sum, dtype);
              const Tensor out = in_place ? x : zeros(context, {sum}, dtype);
              ranks.reduce(x, out, root).wait();
              return rank == root || !in_place ? out : zeros(context, {1}, dtype);
            });
          }
        }
        if (dtype == DType::bf16 || dtype == DType::f16) continue;
        EXPECT_THROW(library.all_reduce(given(), CombineOp::pairwise_sum), Error);
        for (const CombineOp op :
             {CombineOp::sum, CombineOp::maximum, CombineOp::minimum, CombineOp::product, CombineOp::mean}) {
          if (op == CombineOp::mean && !is_floating(dtype)) {
            EXPECT_THROW(library.all_reduce(given(), op), Error);
            continue;
          }
          both([&](Communicator& ranks) {
            const Tensor x = given();
            ranks.all_reduce(x, op).wait();
            return x;
          });
          both([&](Communicator& ranks) {
            const Tensor x = given(), y = zeros(context, {count}, dtype);
            ranks.begin({.kind = CollectiveKind::all_reduce, .input = x, .output = y, .op = op}).wait();
            return y;
          });
          for (const bool in_place : {false, true})
            both([&](Communicator& ranks) {
              const Tensor x = given();
              const Tensor shard = in_place ? x.slice(0, mine.begin, mine.end) : zeros(context, {mine.count()}, dtype);
              ranks.reduce_scatter(x, shard, op).wait();
              return in_place ? x : shard;
            });
        }
      }
  });
}

TEST(MpiLibrary, SaysOfItselfOneLineWithoutAZero) {
  const std::string version = mpi_library_version();
  EXPECT_FALSE(version.empty());
  for (const char end : {'\n', '\0'}) EXPECT_EQ(version.find(end), std::string::npos);
}

TEST(MpiCollectives, MessagesPassEachOther) {
  on_both([](Communicator& library, Communicator&) {
    const Context context = testing::context(1);
    const int n = library.size(), rank = library.rank();
    if (n == 1) return;
    std::vector<Tensor> gotten;
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) {
      gotten.push_back(zeros(context, {1}));
      works.push_back(library.send(tensor_of(context, {100.0 * rank + i}, {1}), (rank + 1) % n));
      works.push_back(library.receive(gotten.back(), (rank + n - 1) % n));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(gotten[static_cast<std::size_t>(i)].item(), 100.0 * ((rank + n - 1) % n) + i);
  });
}

TEST(MpiCollectives, OfAPartWorkAmongItsRanks) {
  on_both([](Communicator& library, Communicator&) {
    const auto part = library.split(library.rank() % 2, -library.rank());
    const Tensor x = tensor_of(testing::context(1), {1.0 + library.rank()}, {1});
    part->all_reduce(x).wait();
    double expected = 0;
    int size = 0;
    for (int r = library.rank() % 2; r < library.size(); r += 2, ++size) expected += 1 + r;
    EXPECT_EQ(x.item(), expected);
    EXPECT_EQ(part->size(), size);
    EXPECT_EQ(part->rank(), size - 1 - library.rank() / 2) << "by descending rank";
    EXPECT_EQ(part->nodes().size(), static_cast<std::size_t>(size));
    EXPECT_EQ(part->traffic().collectives, 1);
    EXPECT_EQ(part->traffic().sent(), 0) << "it does not say";
  });
}

TEST(MpiCollectives, RefuseWhatMpiCannot) {
  on_both([](Communicator& library, Communicator&) {
    const Context context = testing::context(1);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      try {
        library.all_reduce(zeros(context, {2}, dtype));
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported);
        EXPECT_EQ(std::string(error.what()), concat("MPI has no sum of ", dtype));
      }
    }
    EXPECT_THROW(library.split(-1, 0), Error);
    library.fail("enough");
    EXPECT_THROW(library.barrier(), Error);
  });
}

// No time-out reaches into a call of MPI; somebody else is told.
TEST(MpiCollectives, TellThatACallDoesNotComeBack) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    std::atomic<int> told = 0;
    std::string what;
    const auto library =
        make_mpi_collectives(comm, {.timeout = std::chrono::milliseconds(5), .stuck = [&](const std::string& text) {
                                      what = text;
                                      ++told;
                                    }});
    int size = 1, rank = 0;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    if (size == 1) return;
    library->barrier();
    // The last rank comes when the first has been told, which the first cannot say from inside the call.
    if (rank == size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    library->barrier();
    if (rank == 0) {
      EXPECT_EQ(told.load(), 1);
      EXPECT_EQ(what.rfind("MPI's own barrier (collective number ", 0), 0u) << what;
      EXPECT_NE(what.find("has not come back in 5 ms"), std::string::npos) << what;
    }
  });
}

}  // namespace
}  // namespace keel
