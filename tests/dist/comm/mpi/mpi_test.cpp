// What only ranks in MPI processes have: bytes on the wire, chunks, tags, communicators, messages given up.

#include <gtest/gtest.h>

#include <thread>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/mpi_transport.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/mpi/mpi_ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

std::string failure_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return {};
}

TEST(MpiTraffic, IsWhatMpiSends) {
  for (const Algorithm* algorithm : algorithms()) {
    on_ranks(processes(),
             [&](Communicator& comm) {
               const Context context = testing::context(1);
               const int n = comm.size();
               comm.barrier();
               const MpiCounts before = mpi_counts();
               const Traffic earlier = comm.traffic();
               for (const std::int64_t count : {0, 1, n + 1, 10'007, 300'000}) {
                 for (const DType dtype : {DType::f32, DType::bf16}) {
                   const Tensor x = zeros(context, {count}, dtype);
                   const Tensor mine = zeros(context, {part({0, count}, n, comm.rank()).count()}, dtype);
                   const Tensor parts = zeros(context, {count * n}, dtype),
                                received = zeros(context, {count * n}, dtype);
                   comm.all_reduce(x).wait();
                   comm.reduce_scatter(x, mine).wait();
                   comm.all_gather(mine, x).wait();
                   comm.broadcast(x, n - 1).wait();
                   comm.all_to_all(parts, received).wait();
                   if (n > 1 && comm.rank() < 2) (comm.rank() == 0 ? comm.send(x, 1) : comm.receive(x, 0)).wait();
                 }
               }
               const Traffic traffic = comm.traffic();
               EXPECT_EQ(mpi_counts().bytes - before.bytes,
                         traffic.sent() + traffic.control - earlier.sent() - earlier.control)
                   << algorithm->name;
             },
             {.algorithm = std::string(algorithm->name), .shared_memory = false});
  }
}

TEST(MpiTransport, SendsLargeMessagesInChunks) {
  KEEL_NEEDS_RANKS(processes());
  if (processes() == 1) GTEST_SKIP() << "one rank sends nothing";
  on_first_processes(processes(), [](MPI_Comm comm) {
    for (const std::size_t largest : {1, 64, 100, 4'096}) {
      const auto transport = make_mpi_transport(comm, {.largest_message = largest});
      std::uint64_t tag = 0;
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, largest - 1, largest, largest + 1, 3 * largest, 10 * largest + 7})
        pass_on(*transport, tag++, bytes);
      const MpiCounts before = mpi_counts();
      pass_on(*transport, tag++, 10 * largest + 1);
      EXPECT_EQ(mpi_counts().messages - before.messages, 11);
    }
    const auto transport = make_mpi_transport(comm);
    for (const std::size_t bytes : {100'000, 9'000'001}) pass_on(*transport, 1, bytes);
  });
}

TEST(MpiTransport, KeepsMessagesApartThoughTagsAreUsedAgain) {
  if (processes() == 1) GTEST_SKIP() << "one rank sends nothing";
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto transport = make_mpi_transport(comm, {.tags = 8});
    for (std::uint64_t tag = 0; tag < 100; ++tag) pass_on(*transport, tag * 3, 10'000);
    pass_on(*transport, ~std::uint64_t{0}, 100);
    const int other = (transport->rank() + 1) % transport->size();
    Bytes data(10);
    const auto first = transport->receive(other, 5, data.data(), 10);
    EXPECT_NE(failure_of([&] { transport->receive(other, 13, data.data(), 10); }).find("tags 5 and 13 are one for MPI"),
              std::string::npos);
  });
}

TEST(MpiTransport, RunsManyCollectivesOnFewTags) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto communicator = make_mpi_communicator(comm, {.shared_memory = false}, {.tags = 64});
    const Context context = testing::context(1);
    for (int i = 0; i < 300; ++i) {
      const Tensor x = tensor_of(context, std::vector<double>(7, i), {7});
      communicator->all_reduce(x).wait();
      EXPECT_EQ(doubles(x)[6], i * communicator->size());
    }
  });
}

TEST(MpiTransport, RefusesAMessageOfAnotherLength) {
  KEEL_NEEDS_RANKS(2);
  on_first_processes(2, [](MPI_Comm comm) {
    for (const std::size_t bytes : {10, 1'000, 100'000}) {
      for (const int change : {-1, 1}) {
        const auto transport = make_mpi_transport(comm);
        Bytes data(bytes + 1);
        if (transport->rank() == 0) {
          const auto send = transport->send(1, 3, data.data(), bytes);
          EXPECT_NE(failure_of([&] {
                      finish(*transport, *send);
                      while (true) {
                        transport->check();
                        transport->idle(std::chrono::milliseconds(1));
                      }
                    }),
                    "");
        } else {
          const std::size_t expected = bytes + static_cast<std::size_t>(change);
          const auto receive = transport->receive(0, 3, data.data(), expected);
          const std::string said = failure_of([&] { finish(*transport, *receive); });
          EXPECT_NE(said.find("rank 0 sends"), std::string::npos) << said;
          EXPECT_NE(said.find(std::to_string(expected)), std::string::npos) << said;
          transport->fail(said);
        }
      }
    }
  });
}

TEST(MpiTransport, RefusesWhatIsNoUse) {
  EXPECT_NE(failure_of([] { make_mpi_transport(MPI_COMM_NULL); }), "");
  EXPECT_NE(failure_of([] { make_mpi_transport(MPI_COMM_SELF, {.largest_message = 0}); }), "");
  EXPECT_NE(failure_of([] { make_mpi_transport(MPI_COMM_SELF, {.largest_message = std::size_t{1} << 31}); }), "");
  EXPECT_NE(failure_of([] { make_mpi_transport(MPI_COMM_SELF, {.tags = 0}); }), "");
  const auto alone = make_mpi_transport(MPI_COMM_SELF);
  EXPECT_NE(failure_of([&] { alone->send(0, 1, nullptr, 0); }), "");
}

// What MPI cannot take back stays in memory until it has gone, and no longer.
TEST(MpiTransport, KeepsTheMemoryOfASendThatWasGivenUp) {
  KEEL_NEEDS_RANKS(2);
  on_first_processes(2, [](MPI_Comm comm) {
    const auto transport = make_mpi_transport(comm);
    constexpr std::size_t kBytes = 1 << 20;
    if (transport->rank() == 0) {
      auto data = std::make_shared<Bytes>(numbered(kBytes));
      const std::weak_ptr<Bytes> memory = data;
      {
        const auto send = transport->send(1, 1, data->data(), kBytes);
        send->keep(std::move(data));
      }
      EXPECT_FALSE(memory.expired());
      const auto go = transport->send(1, 2, nullptr, 0);
      finish(*transport, *go);
      for (int i = 0; i < 5'000 && !memory.expired(); ++i) transport->idle(std::chrono::milliseconds(1));
      EXPECT_TRUE(memory.expired());
    } else {
      const auto go = transport->receive(0, 2, nullptr, 0);
      finish(*transport, *go);
      Bytes data(kBytes);
      const auto receive = transport->receive(0, 1, data.data(), kBytes);
      finish(*transport, *receive);
      EXPECT_TRUE(data == numbered(kBytes));
    }
  });
}

TEST(MpiTransport, LetsGoOfTheMemoryOfAReceiveThatWasGivenUp) {
  KEEL_NEEDS_RANKS(2);
  on_first_processes(2, [](MPI_Comm comm) {
    const auto transport = make_mpi_transport(comm);
    const auto data = std::make_shared<Bytes>(numbered(100'000));
    {
      const auto receive = transport->receive(1 - transport->rank(), 1, data->data(), data->size());
      receive->keep(data);
      EXPECT_FALSE(receive->has_finished());
    }
    EXPECT_EQ(data.use_count(), 1);
    pass_on(*transport, 2, 100'000);
    EXPECT_TRUE(*data == numbered(100'000));
  });
}

TEST(MpiTransport, WaitsForWhatARankSentBeforeItLeft) {
  KEEL_NEEDS_RANKS(2);
  on_first_processes(2, [](MPI_Comm comm) {
    auto transport = make_mpi_transport(comm);
    constexpr int kMessages = 50;
    const Bytes out = numbered(2'000);
    if (transport->rank() == 0) {
      for (std::uint64_t i = 0; i < kMessages; ++i) finish(*transport, *transport->send(1, i, out.data(), out.size()));
      transport.reset();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Bytes in(out.size());
    for (std::uint64_t i = kMessages; i-- > 0;) finish(*transport, *transport->receive(0, i, in.data(), in.size()));
    EXPECT_TRUE(in == out);
    const auto more = transport->receive(0, kMessages, in.data(), in.size());
    EXPECT_EQ(failure_of([&] { finish(*transport, *more); }), "rank 0 has left while rank 1 waits for it");
  });
}

TEST(MpiTransport, FreesItsCommunicators) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const std::int64_t before = mpi_counts().communicators;
    for (int i = 0; i < (processes() == 8 ? 20 : 100); ++i) {
      const auto communicator = make_mpi_communicator(comm);
      const auto group = communicator->split(communicator->rank() % 2, 0);
      const Tensor x = zeros(testing::context(1), {3});
      group->all_reduce(x).wait();
      communicator->all_reduce(x).wait();
    }
    EXPECT_EQ(mpi_counts().communicators, before);
  });
}

TEST(MpiTransport, FreesGroupsBeforeTheProgramEnds) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto communicator = make_mpi_communicator(comm);
    const std::int64_t before = mpi_counts().communicators;
    for (int i = 0; i < 30; ++i) communicator->split(0, communicator->rank())->barrier();
    for (int i = 0; i < 10; ++i) communicator->barrier();
    EXPECT_LE(mpi_counts().communicators - before, 10);
  });
}

TEST(MpiTransport, LeavesTheCallersMpiAsItWas) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const MpiCounts before = mpi_counts();
    {
      const auto communicator = make_mpi_communicator(comm);
      const auto group = communicator->split(0, 0);
      group->all_reduce(zeros(testing::context(1), {1'000})).wait();
      communicator->barrier();
    }
    EXPECT_EQ(mpi_counts().of_world, before.of_world);
    EXPECT_EQ(mpi_counts().starts_and_ends, before.starts_and_ends);
    for (const MPI_Comm theirs : {comm, MPI_COMM_WORLD, MPI_COMM_SELF}) {
      MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
      MPI_Comm_get_errhandler(theirs, &handler);
      EXPECT_TRUE(handler == MPI_ERRORS_ARE_FATAL);
      MPI_Errhandler_free(&handler);
    }
  });
}

TEST(MpiTransport, WorksInAPartOfTheProcessesWhileTheOthersUseMpiToo) {
  KEEL_NEEDS_RANKS(8);
  on_first_processes(8, [](MPI_Comm comm) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(comm, process() % 2, 0, &half);
    if (process() % 2 == 0) {
      const auto communicator = make_mpi_communicator(half);
      for (int i = 0; i < 20; ++i) {
        const Tensor x = tensor_of(testing::context(1), {1.0 * process()}, {1});
        communicator->all_reduce(x).wait();
        EXPECT_EQ(doubles(x)[0], 0 + 2 + 4 + 6);
      }
    } else {
      for (int i = 0; i < 20; ++i) {
        int mine = process(), sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, half);
        EXPECT_EQ(sum, 1 + 3 + 5 + 7);
      }
    }
    MPI_Comm_free(&half);
  });
}

TEST(MpiTransport, LivesBesideAnotherOfTheSameProcesses) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto one = make_mpi_communicator(comm), two = make_mpi_communicator(comm, {.algorithm = "ring"});
    const Context context = testing::context(1);
    const int n = one->size();
    for (int i = 0; i < 20; ++i) {
      const Tensor x = tensor_of(context, {1, 2}, {2}), y = tensor_of(context, {3, 4}, {2});
      const Work first = one->all_reduce(x), second = two->all_reduce(y);
      second.wait();
      first.wait();
      EXPECT_EQ(doubles(x), (std::vector<double>{1.0 * n, 2.0 * n}));
      EXPECT_EQ(doubles(y), (std::vector<double>{3.0 * n, 4.0 * n}));
    }
  });
}

TEST(MpiTransport, AdvancesTogetherWithAnotherOfTheSameProcesses) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto one = make_mpi_communicator(comm, {.timeout = std::chrono::seconds(10)});
    const auto two = make_mpi_communicator(comm, {.timeout = std::chrono::seconds(10)});
    advance_together(*one, *two);
    for (const std::int64_t count : {3, 300'000}) {
      const Tensor x = zeros(testing::context(1), {count}), y = zeros(testing::context(1), {count});
      const Work first = one->all_reduce(x), second = two->all_reduce(y);
      if (process() % 2 == 0) first.wait(), second.wait();
      else second.wait(), first.wait();
    }
  });
}

TEST(MpiTransport, HasNoAlarmForOtherThreads) {
  on_first_processes(processes(), [](MPI_Comm comm) { EXPECT_EQ(make_mpi_communicator(comm)->alarm(), nullptr); });
}

TEST(MpiTransport, FailsInOneProgramAlone) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto one = make_mpi_communicator(comm), two = make_mpi_communicator(comm);
    if (one->rank() == one->size() - 1) one->fail("enough");
    if (one->size() > 1) {
      EXPECT_TRUE(is_heard(failure_of([&] { one->barrier(); }), "enough"));
    }
    two->barrier();
  });
}

TEST(MpiTransport, CutsAVeryLongReason) {
  if (processes() == 1) GTEST_SKIP() << "one rank has nobody to tell";
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto communicator = make_mpi_communicator(comm);
    const std::string told = failure_of([&] {
      communicator->barrier();  // or others would hear of it while they make their communicator
      if (communicator->rank() == 0) communicator->fail(std::string(100'000, 'x'));
      communicator->barrier();
    });
    EXPECT_GT(told.size(), 500U);
    EXPECT_LT(told.size(), 2'000U);
  });
}

TEST(MpiNodes, AreThoseOfTheMachineUnlessOthersAreGiven) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    const auto n = static_cast<std::size_t>(processes());
    EXPECT_EQ(make_mpi_communicator(comm)->nodes(), std::vector<int>(n, 0));
    std::vector<int> pairs;
    for (std::size_t r = 0; r < n; ++r) pairs.push_back(static_cast<int>(r / 2));
    EXPECT_EQ(make_mpi_communicator(comm, {.nodes = pairs})->nodes(), pairs);
  });
}

}  // namespace
}  // namespace keel
