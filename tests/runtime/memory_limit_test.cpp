#include "keel/runtime/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

struct MemoryLimits : ::testing::Test {
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root / file).parent_path());
    write_text_file(root / file, text);
  }
  void expect(std::int64_t bytes, bool is_of_group) const {
    const MemoryLimit limit = memory_limit(root.path());
    EXPECT_EQ(limit.bytes, bytes);
    EXPECT_EQ(limit.is_of_group, is_of_group);
  }
  testing::TemporaryFolder root;
};

TEST_F(MemoryLimits, AreTheMachinesWhereNoGroupHasALower) {
  expect(0, false);
  write("proc/meminfo", "MemFree:  7 kB\nMemTotal:       2048 kB\nSwapTotal: 9 kB\n");
  expect(2048 << 10, false);
  write("proc/self/cgroup", "0::/\n");
  expect(2048 << 10, false);
  write("sys/fs/cgroup/memory.max", "max\n");
  expect(2048 << 10, false);
}

TEST_F(MemoryLimits, AreThoseOfTheGroupAndOfAnyAroundIt) {
  write("proc/meminfo", "MemTotal: 2048 kB\n");
  write("proc/self/cgroup", "12:cpu,cpuacct:/other\n0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/memory.max", "1000000\n");
  expect(1'000'000, true);
  write("sys/fs/cgroup/jobs/one/memory.max", "4000\n");
  expect(4'000, true);
  write("sys/fs/cgroup/memory.max", "300\n");
  expect(300, true);
}

TEST_F(MemoryLimits, OfVersionOneCountToo) {
  write("proc/meminfo", "MemTotal: 2048 kB\n");
  write("proc/self/cgroup", "4:cpu:/a\n3:hugetlb,memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect(5'000, true);
}

TEST_F(MemoryLimits, OfThisMachineAreKnown) { EXPECT_GT(memory_limit().bytes, std::int64_t{1} << 20); }

TEST(MemorySizes, AreShort) {
  EXPECT_EQ(binary_size(0), "0 B");
  EXPECT_EQ(binary_size(1023), "1023 B");
  EXPECT_EQ(binary_size(1536), "1.5 KiB");
  EXPECT_EQ(binary_size(24.0 * (1 << 30)), "24.0 GiB");
  EXPECT_EQ(binary_size(288.0 * (1 << 30)), "288 GiB");
  EXPECT_EQ(binary_size(2048.0 * (1 << 30)), "2.0 TiB");
}

}  // namespace
}  // namespace keel
