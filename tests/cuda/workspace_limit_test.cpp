// How much memory a library's kernel may work in.

#include "keel/kernels/cuda/workspace_limit.h"

#include "keel/kernels/cuda/stream.h"
#include "tests/cuda/device.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(WorkspaceLimit);

TEST_P(WorkspaceLimit, IsNoMoreThanAQuarterOfTheDevice) {
  std::size_t free = 0, total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  EXPECT_LE(cuda::workspace_limit(device), static_cast<std::int64_t>(total / 4));
  EXPECT_GE(cuda::workspace_limit(device), 0);
}

#ifdef KEEL_EMULATED
TEST(WorkspaceLimits, AreHalfOfWhatNobodyUsesWhereMemoryIsScarce) {
  constexpr std::int64_t kMega = 1 << 20;
  emulation::Machine::get().reset({.bytes = std::size_t{64} << 20});
  {
    const Context device = Context::create({.device = kTestDevice});
    EXPECT_EQ(cuda::workspace_limit(device), 16 * kMega);
    Tensor used = empty(device, {40 * kMega}, DType::u8);
    EXPECT_EQ(cuda::workspace_limit(device), 12 * kMega);
    used = Tensor();
    used = empty(device, {48 * kMega}, DType::u8);  // the 40 go back to the device for it
    EXPECT_EQ(cuda::workspace_limit(device), 8 * kMega);
    used = Tensor();  // stays with the context, which gives it back to whoever asks
    EXPECT_EQ(cuda::workspace_limit(device), 16 * kMega);
  }
  emulation::Machine::get().reset({});
}
#endif

}  // namespace
}  // namespace keel
