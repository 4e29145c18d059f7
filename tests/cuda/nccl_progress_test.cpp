// Calls of NCCL that go on in the background, ranks that never come, and devices that are lost, in the emulator.

#ifdef KEEL_EMULATED

#include <atomic>
#include <thread>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/cuda/nccl_handle.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/comm/heard.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using cuda::NcclHandle;
using std::chrono::milliseconds;

class NcclProgress : public NcclRanks {};

TEST_F(NcclProgress, WorkIsInTheStreamWhenACallReturns) {
  for (const ReduceOrder order : {ReduceOrder::written, ReduceOrder::fast})
    for (const unsigned questions : {0, 1, 5})
      on_devices(3,
                 [&](const DeviceRank& own) {
                   const auto pair = own.devices.split(own.rank() == 2 ? 1 : 0, own.rank());
                   for (const std::int64_t count : {1, 12, 13}) {
                     const Tensor x = tensor_of(
                         own.context, std::vector<double>(static_cast<std::size_t>(count), own.rank() + 1), {count});
                     const Tensor y = zeros(own.context, {count});
                     const Span span = part({0, count}, 3, own.rank());
                     own.devices.reduce_scatter(x, y.slice(0, span.begin, span.end)).wait();
                     own.devices.all_gather(y.slice(0, span.begin, span.end), y).wait();
                     EXPECT_EQ(doubles(y), std::vector<double>(static_cast<std::size_t>(count), 6));
                     pair->all_reduce(x).wait();
                     EXPECT_EQ(doubles(x)[0], 3);
                     own.devices.broadcast(x, 2).wait();
                   }
                   const int next = (own.rank() + 1) % 3, previous = (own.rank() + 2) % 3;
                   const Tensor arrived = zeros(own.context, {1});
                   const Work sent = own.devices.send(tensor_of(own.context, {10.0 * own.rank()}, {1}), next);
                   own.devices.receive(arrived, previous).wait();
                   sent.wait();
                   EXPECT_EQ(doubles(arrived)[0], 10 * previous);
                 },
                 {.nccl = {.order = order}, .nccl_questions = questions});
}

// Fails where the ranks have met and only NCCL has yet to bring them together.
class FailsAfterItsBarrier : public CommunicatorDecorator {
 public:
  explicit FailsAfterItsBarrier(std::unique_ptr<Communicator> inner)
      : CommunicatorDecorator(*inner), own_(std::move(inner)) {}
  Work begin(const Collective& collective) override {
    const Work work = inner_.begin(collective);
    if (collective.kind != CollectiveKind::barrier) return work;
    work.wait();
    throw Error("out of paper");
  }

 private:
  std::unique_ptr<Communicator> own_;
};

TEST_F(NcclProgress, ARankThatFailsBeforeItJoinsEndsTheWaitOfTheOthers) {
  for (const Control control : {Control::threads, Control::tcp, Control::silent}) {
    const auto told = messages(3,
                               [](const DeviceRank& own) {
                                 std::unique_ptr<Communicator> control = own.hosts.split(0, own.rank());
                                 if (own.rank() == 1)
                                   control = std::make_unique<FailsAfterItsBarrier>(std::move(control));
                                 make_nccl_communicator(own.context, std::move(control));
                               },
                               {.control_by = control});
    EXPECT_EQ(told[1], "out of paper");
    for (const std::size_t r : {0, 2}) EXPECT_TRUE(is_heard(told[r], "rank 1 failed: out of paper"));
  }
}

TEST_F(NcclProgress, ARankThatDoesNotJoinIsGivenUp) {
  const auto told = messages(2, [](const DeviceRank& own) {
    std::unique_ptr<Communicator> control = own.hosts.split(0, own.rank());
    if (own.rank() == 0)
      make_nccl_communicator(own.context, std::move(control), {.forming_timeout = milliseconds(100)});
    control->broadcast(zeros(context(1), {128}, DType::u8), 0).wait();  // the id, and no more
    control->barrier();
    control->barrier();
  });
  EXPECT_EQ(told[0], "rank 0 gave up after 100 ms in joining its group");
  EXPECT_TRUE(is_heard(told[1], "rank 0 gave up after 100 ms in joining its group"));
}

TEST_F(NcclProgress, AWaitEndsWhereTheCallerGivesUp) {
  emulation::Machine::get().reset({.devices = 1});
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  int looks = 0;
  NcclHandle handle([&] {
    if (++looks == 10) throw Error("no more patience");
  });
  EXPECT_EQ(error_of([&] { handle.join(id, 2, 0); }), "no more patience");
  EXPECT_EQ(looks, 10);
}

TEST_F(NcclProgress, AnotherThreadEndsACallThatGoesOn) {
  emulation::Machine::get().reset({.devices = 1});
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::atomic<bool> waits = false;
  NcclHandle handle([&] { waits = true; });
  std::jthread other([&] {
    while (!waits) std::this_thread::yield();
    handle.give_up();
  });
  EXPECT_EQ(error_of([&] { handle.join(id, 2, 0); }), "the communicator of NCCL was given up");
  EXPECT_EQ(error_of([&] { handle.finish(); }), "the communicator of NCCL was given up");
}

TEST_F(NcclProgress, ALostDeviceEndsTheWaitForIt) {
  const auto told = messages(2,
                             [](const DeviceRank& own) {
                               own.devices.all_reduce(zeros(own.context, {100})).wait();
                               own.hosts.barrier();
                               if (own.rank() == 0) emulation::Machine::get().lose(0);
                               own.devices.split(0, own.rank());  // waits until the devices are at rest
                             },
                             {.nccl = {.timeout = milliseconds(2'000)}});
  EXPECT_EQ(told[0], "work on emulated:0: an illegal memory access was encountered");
  EXPECT_TRUE(is_heard(told[1], "rank 0 failed: " + told[0]));
}

TEST_F(NcclProgress, ALostDeviceEndsWhatItsRankHasAskedFor) {
  const auto told = messages(2, [](const DeviceRank& own) {
    const Work work = own.devices.all_reduce(zeros(own.context, {100}));
    own.hosts.barrier();
    if (own.rank() == 0) emulation::Machine::get().lose(0);
    while (!work.has_finished()) std::this_thread::yield();
    own.devices.barrier();
  });
  EXPECT_EQ(told[0], "work on emulated:0: an illegal memory access was encountered");
  EXPECT_TRUE(is_heard(told[1], "rank 0 failed: " + told[0]));
}

}  // namespace
}  // namespace keel

#endif
