// A device that has failed for good, in the emulator: whoever asks it whether something is done is told.

#ifdef KEEL_EMULATED

#include "keel/runtime/device_api.h"
#include "keel/runtime/emulation/machine.h"
#include "keel/runtime/work_timer.h"
#include "tests/cuda/device.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr const char* kLost = "work on emulated:0: an illegal memory access was encountered";

class LostDevice : public ::testing::Test {
 protected:
  void SetUp() override { emulation::Machine::get().reset({.devices = 1}); }
  void TearDown() override { emulation::Machine::get().reset({}); }
  static Context open() {
    return Context::create({.device = kTestDevice, .threads = 1, .kernels = KernelChoice::plain});
  }
};

TEST_F(LostDevice, IsToldToWhoAsksForACopy) {
  const Context device = open();
  const HostCopy copy(zeros(device, {3}));
  EXPECT_FALSE(copy.has_arrived());
  emulation::Machine::get().lose(0);
  EXPECT_EQ(error_of([&] { copy.has_arrived(); }), kLost);
  EXPECT_EQ(error_of([&] { copy.get(); }), kLost);
  EXPECT_EQ(error_of([&] { device.synchronize(); }), kLost);
  EXPECT_EQ(error_of([&] { device.stream().record(); }), "cudaEventRecord: an illegal memory access was encountered");
}

TEST_F(LostDevice, KeepsTheHostMemoryThatItMayStillWrite) {
  const Context device = open();
  { const HostCopy copy(zeros(device, {100})); }  // is on its way
  const auto reserved = [&] { return device.host().memory().reserved; };
  const std::size_t block = reserved();
  emulation::Machine::get().lose(0);
  const Tensor next = empty(device.host(), {100});
  EXPECT_EQ(reserved(), 2 * block);
  device.host().allocator().trim();
  EXPECT_EQ(reserved(), block);
}

TEST_F(LostDevice, IsToldToWhoMeasuresItsTime) {
  const Context device = open();
  WorkTimer timer(device);
  timer.start();
  timer.stop();
  emulation::Machine::get().lose(0);
  EXPECT_EQ(error_of([&] { timer.milliseconds(); }), kLost);
}

}  // namespace
}  // namespace keel

#endif
