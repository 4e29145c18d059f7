// Memory that several processes see, here opened by the process that made it.

#include "keel/dist/comm/shared_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "keel/runtime/file.h"

namespace keel {
namespace {

bool holds(const SharedSegment& segment, std::size_t bytes, std::byte value) {
  return std::all_of(segment.memory(), segment.memory() + bytes, [&](std::byte each) { return each == value; });
}

// Around the ends of pages, behind which the key lies.
TEST(SharedSegment, HasAllItsBytesWhereverItIsOpened) {
  for (const std::size_t bytes : {1, 4'095, 4'096, 4'097, 8'191, 8'192, 8'193, 100'000}) {
    const auto made = SharedSegment::create(bytes);
    ASSERT_TRUE(made) << bytes;
    EXPECT_TRUE(holds(*made, bytes, std::byte{0}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(made->memory()) % 4'096, 0u);
    const auto opened = SharedSegment::open(made->name(), bytes);
    ASSERT_TRUE(opened) << bytes;
    std::fill_n(made->memory(), bytes, std::byte{0xff});
    EXPECT_TRUE(holds(*opened, bytes, std::byte{0xff}));
    std::fill_n(opened->memory(), bytes, std::byte{1});
    EXPECT_TRUE(holds(*made, bytes, std::byte{1}));
    EXPECT_TRUE(SharedSegment::open(made->name(), bytes)) << "the key is none of the " << bytes << " bytes";
  }
}

constexpr std::size_t kBytes = 5'000;

TEST(SharedSegment, IsOpenedByItsWholeNameAlone) {
  const auto made = SharedSegment::create(kBytes), other = SharedSegment::create(kBytes);
  const SharedSegment::Name right = made->name();
  const auto opens = [&](SharedSegment::Name name, std::size_t bytes = kBytes) {
    return SharedSegment::open(name, bytes) != nullptr;
  };
  EXPECT_TRUE(opens(right));
  EXPECT_FALSE(opens({})) << "no name";
  EXPECT_FALSE(opens({.process = right.process, .file = right.file, .key = right.key + 1}));
  EXPECT_FALSE(opens({.process = right.process, .file = other->name().file, .key = right.key}));
  EXPECT_FALSE(opens({.process = 1 << 30, .file = right.file, .key = right.key}));
  EXPECT_NE(right.key, other->name().key);
  EXPECT_FALSE(opens(right, kBytes + 4'096)) << "it has fewer pages";
  EXPECT_FALSE(opens(right, kBytes - 4'096)) << "it has more";
}

// As where whoever started the process has closed its standard input.
TEST(SharedSegment, MayBeTheProcesssFirstFile) {
  const int input = ::dup(STDIN_FILENO);
  const auto before = SharedSegment::create(kBytes);
  ::close(STDIN_FILENO);
  EXPECT_TRUE(SharedSegment::open(before->name(), kBytes)) << "as the first file";
  {
    const auto made = SharedSegment::create(kBytes);
    EXPECT_EQ(made->name().file, 0);
    EXPECT_TRUE(SharedSegment::open(made->name(), kBytes));
    made->hide();
    EXPECT_EQ(::fcntl(0, F_GETFD), -1) << "it is closed";
  }
  ::dup2(input, STDIN_FILENO);
  ::close(input);
}

// None that the process opens later under the number.
TEST(SharedSegment, ClosesNoFileButItsOwn) {
  int number = -1;
  {
    const auto made = SharedSegment::create(kBytes);
    const auto opened = SharedSegment::open(made->name(), kBytes);
    number = static_cast<int>(made->name().file);
    made->hide();
    EXPECT_EQ(::dup2(STDERR_FILENO, number), number);
    made->hide();
  }
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
  ::close(number);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) EXPECT_NE(::fcntl(file, F_GETFD), -1) << file;
}

bool is_mapped() { return read_text_file("/proc/self/maps").find("memfd:keel") != std::string::npos; }

TEST(SharedSegment, GivesItsMemoryBack) {
  const bool before = is_mapped();  // of other tests
  auto made = SharedSegment::create(kBytes);
  auto opened = SharedSegment::open(made->name(), kBytes);
  EXPECT_TRUE(is_mapped());
  made.reset();
  EXPECT_TRUE(is_mapped());
  opened.reset();
  EXPECT_EQ(is_mapped(), before);
}

TEST(SharedSegment, IsNoneOfMoreThanTheSystemHas) {
  for (const int bits : {50, 60}) EXPECT_EQ(SharedSegment::create(std::size_t{1} << bits), nullptr);
}

TEST(SharedSegment, StaysWhereItIsOnceItIsHidden) {
  auto made = SharedSegment::create(10);
  const auto opened = SharedSegment::open(made->name(), 10);
  const SharedSegment::Name name = made->name();
  made->hide();
  EXPECT_FALSE(SharedSegment::open(name, 10));
  made->memory()[9] = std::byte{7};
  EXPECT_EQ(opened->memory()[9], std::byte{7});
  made.reset();
  EXPECT_EQ(opened->memory()[9], std::byte{7});
}

}  // namespace
}  // namespace keel
