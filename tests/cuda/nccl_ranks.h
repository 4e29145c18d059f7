#pragma once
// Ranks as threads, each with a device of its own and an NCCL communicator, for tests.

#include <functional>
#include <string>

#include "keel/dist/comm/nccl_communicator.h"
#include "keel/dist/comm/run_ranks.h"
#include "tests/cuda/device.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel::testing {

// What one rank has: a communicator between the devices, one between the processors, and its device.
struct DeviceRank {
  Communicator& devices;
  Communicator& hosts;
  const Context& context;
  int rank() const { return devices.rank(); }
  int size() const { return devices.size(); }
};

struct DeviceRankOptions {
  NcclOptions nccl = {};
  CommunicatorOptions control = {};
  std::uint64_t drain_seed = 0;  // of the emulator: which of the work that events allow happens early
};

class NcclRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_nccl();
    if (!why.empty()) GTEST_SKIP() << why;
    if (most() == 0) GTEST_SKIP() << count_devices(kTestDevice.type).why_none;
  }
#ifdef KEEL_EMULATED
  void TearDown() override { emulation::Machine::get().reset({}); }
  static int most() { return 4; }
#else
  static int most() { return std::min(4, count_devices(kTestDevice.type).count); }
#endif

  // Calls f on n threads; what the first one that failed threw is thrown again.
  static void on_devices(int n, const std::function<void(const DeviceRank&)>& f,
                         const DeviceRankOptions& options = {}) {
#ifdef KEEL_EMULATED
    emulation::Machine::get().reset({.devices = n, .drain_seed = options.drain_seed});
#endif
    run_ranks(
        n,
        [&](Communicator& hosts) {
          const Context context = Context::create(
              {.device = {kTestDevice.type, hosts.rank()}, .threads = 1, .kernels = KernelChoice::plain});
          const auto devices = make_nccl_communicator(context, hosts.split(0, hosts.rank()), options.nccl);
          f({*devices, hosts, context});
        },
        options.control);
  }
  // What every rank's exception says.
  static std::vector<std::string> messages(int n, const std::function<void(const DeviceRank&)>& f,
                                           const DeviceRankOptions& options = {}) {
    std::vector<std::string> all(static_cast<std::size_t>(n));
    try {
      on_devices(
          n,
          [&](const DeviceRank& own) {
            try {
              f(own);
            } catch (const std::exception& error) {
              all[static_cast<std::size_t>(own.rank())] = error.what();
              throw;
            }
          },
          options);
    } catch (const std::exception&) {
      // all of them are there
    }
    return all;
  }
};

// The same numbers on a device and on the processor: each rank's own, such that sums are not exact in any order.
inline Tensor brought(const Context& context, int rank, std::int64_t count, DType dtype) {
  return uniform_tensor(context, {count}, static_cast<std::uint64_t>(rank) + 1, dtype, is_floating(dtype) ? -1 : 0,
                        is_floating(dtype) ? 1 : 50);
}

}  // namespace keel::testing

// A test among so many devices prints why where there are fewer.
#define KEEL_NEEDS_DEVICES(n) \
  if (most() < (n)) GTEST_SKIP() << "needs " << (n) << " devices, there are " << most()
