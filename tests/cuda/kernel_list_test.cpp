// With KEEL_LIST_KERNELS=FILE, each test that ends adds lines to the file, a line for each kernel that it ran: test,
// file of the code, address in it, launches; separated by tabs. tests/build/sanitizer_set_holds reads them.

#ifdef KEEL_EMULATED

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "keel/runtime/emulation/grid.h"

namespace keel {
namespace {

class KernelList : public ::testing::EmptyTestEventListener {
 public:
  explicit KernelList(const char* path) : out_(path) {
    probe_.on_grid = [this](const emulation::Grid& grid) { ++launches_[grid.code]; };
  }
  void OnTestStart(const ::testing::TestInfo&) override { emulation::grid_options().probe = &probe_; }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    for (const auto& [code, count] : launches_) {
      Dl_info where{};
      if (::dladdr(code, &where) == 0) continue;
      const auto address = reinterpret_cast<std::uintptr_t>(code) - reinterpret_cast<std::uintptr_t>(where.dli_fbase);
      out_ << test.test_suite_name() << '.' << test.name() << '\t' << where.dli_fname << '\t' << std::hex << address
           << std::dec << '\t' << count << std::endl;
    }
    launches_.clear();
  }

 private:
  std::ofstream out_;
  std::map<const void*, int> launches_;
  emulation::Probe probe_;
};

// GoogleTest owns its listeners.
[[maybe_unused]] const bool listed = [] {
  const char* const path = std::getenv("KEEL_LIST_KERNELS");
  if (path != nullptr) ::testing::UnitTest::GetInstance()->listeners().Append(new KernelList(path));
  return path != nullptr;
}();

}  // namespace
}  // namespace keel

#endif
