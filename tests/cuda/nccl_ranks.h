#pragma once
// Ranks as threads, each with a device of its own and an NCCL communicator, for tests.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/nccl_communicator.h"
#include "keel/dist/comm/run_ranks.h"
#include "tests/cuda/device.h"
#include "tests/dist/comm/ranks.h"
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

// What connects the hosts.
enum class Control : unsigned char {
  threads,
  tcp,
  silent,  // threads that have no alarm, as processes of MPI have none
};

inline void PrintTo(Control control, std::ostream* out) {
  *out << (control == Control::threads ? "threads" : control == Control::tcp ? "tcp" : "silent");
}

class WithoutAlarm : public CommunicatorDecorator {
 public:
  explicit WithoutAlarm(std::unique_ptr<Communicator> inner) : CommunicatorDecorator(*inner), own_(std::move(inner)) {}
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<WithoutAlarm>(inner_.split(color, key));
  }
  std::shared_ptr<Alarm> alarm() override { return nullptr; }

 private:
  std::unique_ptr<Communicator> own_;
};

struct DeviceRankOptions {
  NcclOptions nccl = {};
  CommunicatorOptions control = {};
  Control control_by = Control::threads;
  int devices = 0;                                                   // 0: one for each rank
  std::function<void(int rank, const std::string& what)> told = {};  // what a rank has thrown
  // Of the emulator.
  std::uint64_t drain_seed = 0;   // which of the work that events allow happens early
  unsigned nccl_questions = 0;    // before a call of NCCL is over
  bool nccl_tells_aborts = true;  // to the other ranks
  int nccl_version = 22809;
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

  // Calls f on n threads; what one that failed threw is thrown again, of threads the first one that did.
  static void on_devices(int n, const std::function<void(const DeviceRank&)>& f,
                         const DeviceRankOptions& options = {}) {
    const int devices = options.devices == 0 ? n : options.devices;
#ifdef KEEL_EMULATED
    emulation::Machine::get().reset({.devices = devices,
                                     .drain_seed = options.drain_seed,
                                     .nccl_questions = options.nccl_questions,
                                     .nccl_tells_aborts = options.nccl_tells_aborts,
                                     .nccl_version = options.nccl_version});
#endif
    const auto run = [&](Communicator& hosts) {
      try {
        const Context context = Context::create(
            {.device = {kTestDevice.type, hosts.rank() % devices}, .threads = 1, .kernels = KernelChoice::plain});
        std::unique_ptr<Communicator> control = hosts.split(0, hosts.rank());
        if (options.control_by == Control::silent) control = std::make_unique<WithoutAlarm>(std::move(control));
        const auto ranks = make_nccl_communicator(context, std::move(control), options.nccl);
        f({*ranks, hosts, context});
      } catch (const std::exception& error) {
        if (options.told) options.told(hosts.rank(), error.what());
        throw;
      }
    };
    if (options.control_by == Control::tcp) on_ranks(n, run, options.control);  // of tests/dist/comm/tcp
    else run_ranks(n, run, options.control);
  }
  // What every rank's exception says.
  static std::vector<std::string> messages(int n, const std::function<void(const DeviceRank&)>& f,
                                           DeviceRankOptions options = {}) {
    std::vector<std::string> all(static_cast<std::size_t>(n));
    options.told = [&](int rank, const std::string& what) { all[static_cast<std::size_t>(rank)] = what; };
    try {
      on_devices(n, f, options);
    } catch (const std::exception&) {
      // all of them are there
    }
    return all;
  }
};

inline constexpr DType kAllTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                      DType::i32, DType::i64,  DType::u8};

// The same numbers on a device and on the processor: each rank's own, such that sums are not exact in any order.
inline Tensor brought(const Context& context, int rank, std::int64_t count, DType dtype) {
  return uniform_tensor(context, {count}, static_cast<std::uint64_t>(rank) + 1, dtype, is_floating(dtype) ? -1 : 0,
                        is_floating(dtype) ? 1 : 50);
}

}  // namespace keel::testing

// A test among so many devices prints why where there are fewer.
#define KEEL_NEEDS_DEVICES(n) \
  if (most() < (n))           \
  GTEST_SKIP() << (n) << " ranks need as many GPUs, as NCCL refuses two ranks on one, and there are " << most()
