// Collectives between devices whose control are processes of MPI, which only the first thread of each may call. Every
// process has a group of its own there, since the emulated NCCL connects threads of one process, and NCCL wants a GPU
// for each rank.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "keel/dist/comm/mpi_transport.h"
#include "keel/dist/comm/nccl_communicator.h"
#include "keel/runtime/device_api.h"
#include "tests/cuda/device.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/mpi/mpi_ranks.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using std::chrono::milliseconds;

// What a process has: a communicator of all, and a device of its own in a group that is part of it.
struct Process {
  Context context = Context::create({.device = kTestDevice, .threads = 1, .kernels = KernelChoice::plain});
  std::unique_ptr<Communicator> all;
  std::unique_ptr<Communicator> device;

  // The watcher looks every 5 ms.
  explicit Process(MPI_Comm comm) : all(make_mpi_communicator(comm)) {
    device = make_nccl_communicator(context, all->split(all->rank(), 0), {.timeout = milliseconds(50)});
  }
};

class NcclMpi : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_nccl();
    if (!why.empty()) GTEST_SKIP() << why;
    if (count_devices(kTestDevice.type).count == 0) GTEST_SKIP() << count_devices(kTestDevice.type).why_none;
  }
};

TEST_F(NcclMpi, WatcherThreadsCallNoMpi) {
  const MpiCounts before = mpi_counts();
  on_first_processes(processes(), [](MPI_Comm comm) {
    Process own(comm);
    const auto until = std::chrono::steady_clock::now() + milliseconds(400);
    double goes_on = 1;
    while (goes_on == 1) {
      const Tensor x = tensor_of(own.context, {3, 4}, {2});
      own.device->all_reduce(x).wait();
      EXPECT_EQ(doubles(x), (std::vector<double>{3, 4}));
      const Tensor wanting = tensor_of(context(1), {std::chrono::steady_clock::now() < until ? 1.0 : 0.0}, {1});
      own.all->all_reduce(wanting, CombineOp::maximum).wait();
      goes_on = doubles(wanting)[0];
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_EQ(mpi_counts().of_other_threads, before.of_other_threads);
}

TEST_F(NcclMpi, AFailureElsewhereIsHeardAtTheNextCall) {
  on_first_processes(processes(), [](MPI_Comm comm) {
    Process own(comm);
    own.device->all_reduce(zeros(own.context, {2})).wait();
    own.all->barrier();
    if (process() == 0) {
      own.all->fail("out of paper");
      return;
    }
    const std::string told = error_of([&] {
      for (;;) own.device->all_reduce(zeros(own.context, {2})).wait();
    });
    EXPECT_TRUE(is_heard(told, "out of paper"));
    EXPECT_TRUE(is_heard(error_of([&] { own.device->poll(); }), "out of paper")) << "and at every one behind it";
  });
}

}  // namespace
}  // namespace keel
