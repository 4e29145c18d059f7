// The kernel table of a device beside the processor's.

#include "keel/kernels/table.h"

#include <array>
#include <bit>

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(KernelTableOnDevice);

TEST_P(KernelTableOnDevice, HasEveryEntryOfTheProcessor) {
  // The table holds nothing but function pointers.
  using Entries = std::array<void (*)(), sizeof(KernelTable) / sizeof(void (*)())>;
  const auto here = std::bit_cast<Entries>(kernel_table(host)), there = std::bit_cast<Entries>(kernel_table(device));
  for (std::size_t i = 0; i < here.size(); ++i)
    EXPECT_EQ(there[i] != nullptr, here[i] != nullptr) << "entry " << i << " of KernelTable";
}

}  // namespace
}  // namespace keel
