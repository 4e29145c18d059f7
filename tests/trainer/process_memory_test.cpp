// What the kernel says of the process, and nothing where it says nothing.

#include "keel/trainer/process_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

namespace keel {
namespace {

TEST(ProcessMemory, GrowsByWhatIsWritten) {
  constexpr std::int64_t kBytes = 32 << 20;
  const std::int64_t resident = resident_bytes(), own = own_bytes();
  EXPECT_GT(own, 0);
  EXPECT_GE(resident, own);
  std::vector<char> written(kBytes);
  std::memset(written.data(), 1, written.size());
  EXPECT_GE(resident_bytes(), resident + kBytes / 2);
  EXPECT_GE(own_bytes(), own + kBytes / 2);
  EXPECT_GE(peak_resident_bytes(), resident + kBytes / 2);
  EXPECT_EQ(written.back(), 1);
}

TEST(ProcessMemory, IsNoneWhereNoFileCanBeOpened) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::int64_t resident = resident_bytes(), own = own_bytes();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(resident, 0);
  EXPECT_EQ(own, 0);
}

}  // namespace
}  // namespace keel
