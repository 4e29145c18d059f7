#include "keel/runtime/partial_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(PartialFile, IsWrittenBySeveralInTurnAndAppearsWhole) {
  const TemporaryFolder folder;
  {
    PartialFile file(folder / "a");
    file.write(bytes_of("hello, wor"));
    file.flush();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  PartialFile file(folder / "a");
  EXPECT_EQ(file.size(), 10u);
  file.cut(7);
  file.write(bytes_of("there"));
  file.rewrite(0, bytes_of("H"));
  file.commit();
  EXPECT_EQ(read_text_file(folder / "a"), "Hello, there");
  EXPECT_FALSE(std::filesystem::exists(PartialFile::partial_of(folder / "a")));
}

TEST(PartialFile, SaysWhatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { PartialFile(folder / "no/a"); }).find("No such file"), std::string::npos);
  PartialFile file(folder / "a");
  file.write(bytes_of("abc"));
  EXPECT_NE(error_of([&] { file.cut(4); }).find("fewer than the 4"), std::string::npos);
  EXPECT_NE(error_of([&] { file.rewrite(2, bytes_of("xy")); }).find("reach past"), std::string::npos);
  file.discard();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PartialFile, IsKnownByItsWholeEndingAlone) {
  EXPECT_TRUE(PartialFile::is_partial(PartialFile::partial_of("a.bin")));
  for (const char* name : {"a.bin", "a.partial.bin", "a.partials", "a.partial.json", "a_partial", ""})
    EXPECT_FALSE(PartialFile::is_partial(name)) << name;
}

}  // namespace
}  // namespace keel
