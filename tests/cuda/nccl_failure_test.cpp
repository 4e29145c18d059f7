// Collectives between devices that fail: by disagreement, by a rank that throws or does not come, by bad arguments.

#include <thread>

#include "keel/runtime/graph.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/comm/heard.h"

namespace keel {
namespace {

using namespace keel::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Over each kind of control.
class NcclFailure : public NcclRanks, public ::testing::WithParamInterface<Control> {
 protected:
  static void on_devices(int n, const std::function<void(const DeviceRank&)>& f, DeviceRankOptions options = {}) {
    options.control_by = GetParam();
    NcclRanks::on_devices(n, f, options);
  }
  static std::vector<std::string> messages(int n, const std::function<void(const DeviceRank&)>& f,
                                           DeviceRankOptions options = {}) {
    options.control_by = GetParam();
    return NcclRanks::messages(n, f, options);
  }
};
INSTANTIATE_TEST_SUITE_P(, NcclFailure, ::testing::Values(Control::threads, Control::tcp, Control::silent),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_P(NcclFailure, OfAgreementIsToldToEveryRankBeforeAnythingIsWritten) {
  KEEL_NEEDS_DEVICES(3);
  const auto told = messages(3,
                             [](const DeviceRank& own) {
                               const Tensor x = tensor_of(own.context, std::vector<double>(100, 5), {100});
                               own.devices.all_reduce(zeros(own.context, {5})).wait();
                               try {
                                 own.devices.all_reduce(x.slice(0, 0, own.rank() == 2 ? 99 : 100)).wait();
                               } catch (const Error& error) {
                                 EXPECT_EQ(error.kind(), ErrorKind::peer);
                                 EXPECT_EQ(doubles(x), std::vector<double>(100, 5));
                                 throw;
                               }
                             },
                             {.nccl = {.check_every = 1}});
  for (const std::string& text : told)
    EXPECT_EQ(text,
              "ranks ask for different collectives as number 1: rank 0 for all_reduce of 100 f32 (sum, direct), rank 2 "
              "for all_reduce of 99 f32 (sum, direct)");
}

TEST_P(NcclFailure, OfAgreementComesToLightAtTheNextComparison) {
  KEEL_NEEDS_DEVICES(2);
  const auto told = messages(2,
                             [](const DeviceRank& own) {
                               const Tensor x = zeros(own.context, {8}), y = zeros(own.context, {8});
                               // As many bytes either way, so that NCCL itself may not notice.
                               own.devices.broadcast(x, 0).wait();
                               own.rank() == 0 ? own.devices.all_reduce(x).wait()
                                               : own.devices.all_reduce(y, CombineOp::maximum).wait();
                               own.devices.broadcast(x, 0).wait();
                               own.devices.broadcast(x, 0).wait();
                             },
                             {.nccl = {.check_every = 4}});
  for (const std::string& text : told)
    EXPECT_TRUE(contains(text,
                         "ranks asked for different collectives before broadcast of 8 f32 from rank 0 (collective "
                         "number 3)"))
        << text;
}

#ifdef KEEL_EMULATED
TEST_P(NcclFailure, OfWhatIsNotComparedIsToldInTheWordsOfNccl) {
  const auto told = messages(2, [](const DeviceRank& own) {
    own.devices.broadcast(zeros(own.context, {own.rank() + 7}), 0).wait();
    try {
      own.context.synchronize();
    } catch (const Error&) {
      // The emulator tells of it here, too.
    }
    own.devices.poll();
  });
  for (const std::string& text : told)
    EXPECT_TRUE(contains(text, "rank 0: broadcast of 7 float32, from rank 0; rank 1: broadcast of 8 float32")) << text;
}

TEST_P(NcclFailure, OfAGraphThatWouldRecordACollective) {
  on_devices(1, [](const DeviceRank& own) {
    const Tensor x = zeros(own.context, {3});
    EXPECT_THROW(Graph::record(own.context, own.context.make_stream(), [&] { own.devices.all_reduce(x); }), Error);
    own.devices.all_reduce(x).wait();
    own.context.synchronize();
  });
}
#endif

TEST_P(NcclFailure, OfOneRankReachesAllWithItsReason) {
  KEEL_NEEDS_DEVICES(3);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto told = messages(3, [](const DeviceRank& own) {
      const Tensor x = zeros(own.context, {100});
      own.devices.all_reduce(x).wait();
      if (own.rank() == 1) throw Error("the disk is full");
      const Work work = own.devices.all_reduce(x);
      while (!work.has_finished()) std::this_thread::yield();
    });
    EXPECT_EQ(told[1], "the disk is full");
    for (const std::size_t r : {0, 2}) EXPECT_TRUE(is_heard(told[r], "rank 1 failed: the disk is full"));
  }
}

TEST_P(NcclFailure, WakesARankThatWaitsForItsDevice) {
  KEEL_NEEDS_DEVICES(3);
  const auto told = messages(3, [](const DeviceRank& own) {
    own.devices.barrier();
    if (own.rank() == 1) {
      own.devices.fail("rank 1 lost its data");
      return;
    }
    const Tensor x = zeros(own.context, {100});
    try {
      own.devices.all_reduce(x).wait();
      own.context.synchronize();
    } catch (const Error&) {
      // The emulator tells of it here, a GPU does not.
    }
    own.devices.barrier();
  });
  for (const std::size_t r : {0, 2}) EXPECT_TRUE(is_heard(told[r], "rank 1 lost its data"));
}

#ifdef KEEL_EMULATED
// As between GPUs: the others' NCCL does not notice. Where the control has no alarm, the time-out ends the wait.
TEST_P(NcclFailure, EndsAWaitForTheDeviceThoughNcclTellsNothingOfIt) {
  const auto told = messages(3,
                             [](const DeviceRank& own) {
                               own.devices.barrier();
                               if (own.rank() == 1) {
                                 own.devices.fail("rank 1 lost its data");
                                 return;
                               }
                               own.devices.all_reduce(zeros(own.context, {100})).wait();
                               own.context.synchronize();
                               own.devices.barrier();
                             },
                             {.nccl = {.timeout = GetParam() == Control::silent ? milliseconds(300) : seconds(300)},
                              .nccl_tells_aborts = false});
  for (const std::size_t r : {0, 2}) EXPECT_TRUE(is_heard(told[r], "rank 1 lost its data"));
}
#endif

TEST_P(NcclFailure, ReachesTheGroupsThatWereSplitOff) {
  KEEL_NEEDS_DEVICES(4);
  const auto told = messages(4, [](const DeviceRank& own) {
    const auto pair = own.devices.split(own.rank() / 2, 0);
    if (own.rank() == 0) throw Error("out of paper");
    const Work work = pair->all_reduce(zeros(own.context, {3}));
    while (!work.has_finished()) std::this_thread::yield();
    own.devices.barrier();
  });
  for (const std::size_t r : {1, 2, 3}) EXPECT_TRUE(is_heard(told[r], "rank 0 failed: out of paper"));
}

TEST_P(NcclFailure, OfARankThatDoesNotComeNamesCollectiveAndStep) {
  KEEL_NEEDS_DEVICES(2);
  const auto told = messages(2,
                             [](const DeviceRank& own) {
                               own.devices.set_activity("step 57");
                               if (own.rank() == 1) std::this_thread::sleep_for(milliseconds(1500));
                               own.devices.reduce_scatter(zeros(own.context, {8}), zeros(own.context, {4})).wait();
                               try {
                                 own.context.synchronize();  // returns: the collective is given up
                               } catch (const Error&) {}
                               own.devices.poll();
                               FAIL() << "of rank " << own.rank();
                             },
                             {.nccl = {.timeout = milliseconds(200)}});
  for (const std::string& text : told)
    EXPECT_TRUE(
        text.starts_with("rank 0 gave up after 200 ms in reduce_scatter of 8 f32 (sum) (collective number 0, step 57)"))
        << text;
}

TEST_P(NcclFailure, OfARankThatDoesNotComeNamesItWhereRanksCompare) {
  KEEL_NEEDS_DEVICES(3);
  const auto told = messages(3,
                             [](const DeviceRank& own) {
                               own.devices.set_activity("step 57");
                               own.devices.all_reduce(zeros(own.context, {8})).wait();
                               if (own.rank() == 1) std::this_thread::sleep_for(milliseconds(600));
                               own.devices.all_reduce(zeros(own.context, {8})).wait();
                             },
                             {.nccl = {.check_every = 1}, .control = {.timeout = milliseconds(150)}});
  for (const std::size_t r : {0, 2}) {
    EXPECT_TRUE(contains(told[r], "nothing came from rank 1")) << told[r];
    EXPECT_TRUE(contains(told[r], "before all_reduce of 8 f32 (sum) (collective number 1, step 57)")) << told[r];
  }
  EXPECT_NE(told[1], "");
}

TEST_P(NcclFailure, OfABarrierNamesTheRankThatDoesNotCome) {
  KEEL_NEEDS_DEVICES(2);
  const auto told = messages(2,
                             [](const DeviceRank& own) {
                               EXPECT_EQ(own.devices.timeout(), milliseconds(100)) << "the control's";
                               if (own.rank() == 1) std::this_thread::sleep_for(milliseconds(400));
                               own.devices.barrier();
                             },
                             {.control = {.timeout = milliseconds(100)}});
  EXPECT_TRUE(contains(told[0], "nothing came from rank 1")) << told[0];
  EXPECT_NE(told[1], "");
}

TEST_P(NcclFailure, IsNotSuspectedOfARankWhoseHostIsBusy) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2,
             [](const DeviceRank& own) {
               const Tensor x = tensor_of(own.context, {1}, {1});
               const Work work = own.devices.all_reduce(x);
               std::this_thread::sleep_for(milliseconds(700));
               work.wait();
               EXPECT_EQ(doubles(x)[0], 2);
             },
             {.nccl = {.timeout = milliseconds(200)}});
}

TEST_P(NcclFailure, OfACommunicatorThatGoesIsToldToWhoStillWaits) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2, [](const DeviceRank& own) {
    Work message, sum;
    const Tensor x = tensor_of(own.context, {4}, {1});
    {
      const auto pair = own.devices.split(0, own.rank());
      sum = pair->all_reduce(x);
      message = own.rank() == 0 ? pair->send(x, 1) : pair->receive(zeros(own.context, {1}), 0);
    }
    EXPECT_THROW(message.wait(), Error);
    sum.wait();  // was in the stream
    EXPECT_EQ(doubles(x)[0], 8);
    own.devices.barrier();
  });
}

TEST_P(NcclFailure, OfArgumentsNamesThem) {
  const Context host = context(1);
  EXPECT_THROW(make_nccl_communicator(host, nullptr), Error);
  on_devices(1, [&](const DeviceRank& own) {
    const Context another = Context::create({.device = kTestDevice, .threads = 1});
    try {
      own.devices.all_reduce(zeros(another, {3}));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_TRUE(contains(error.what(), "all_reduce of 3 f32 (sum): NCCL moves the memory of ")) << error.what();
    }
    EXPECT_THROW(own.devices.broadcast(zeros(own.context, {8}), 1), Error);
    EXPECT_THROW(make_nccl_communicator(host, own.hosts.split(0, 0)), Error);
    EXPECT_THROW(make_nccl_communicator(own.context, own.hosts.split(0, 0), {.algorithm = "rang"}), Error);
    EXPECT_THROW(make_nccl_communicator(own.context, own.hosts.split(0, 0), {.check_every = -1}), Error);
    own.devices.all_reduce(zeros(own.context, {3})).wait();  // nothing was broken
    own.context.synchronize();
  });
}

}  // namespace
}  // namespace keel
