#include "keel/data/lines.h"

#include <gtest/gtest.h>

#include <array>

#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

TEST(Lines, AreThoseThatAreNotEmptyWithoutTheirEnds) {
  const TemporaryFolder folder;
  write_text_file(folder / "lines.txt", "one\n\ntwo words\r\n\n three");
  const DatasetPtr lines = open_lines(folder / "lines.txt");
  ASSERT_EQ(lines->size(), 3);
  const std::vector<Example> all = lines->examples(std::array<std::int64_t, 3>{2, 0, 1});
  EXPECT_EQ(all[0].text("text"), " three");
  EXPECT_EQ(all[1].text("text"), "one");
  EXPECT_EQ(all[2].text("text"), "two words");
  EXPECT_EQ(lines->example(1), all[2]);
  EXPECT_FALSE(error_of([&] { lines->example(3); }).empty());
  write_text_file(folder / "others.txt", "one\ntwo\n");
  EXPECT_NE(open_lines(folder / "others.txt")->fingerprint(), lines->fingerprint());
}

TEST(Lines, ThatAreNotUtf8AreNamedWhenTheyAreRead) {
  const TemporaryFolder folder;
  write_text_file(folder / "t.txt", "one\n\nab\xff\n");
  const DatasetPtr lines = open_lines(folder / "t.txt");
  EXPECT_EQ(error_of([&] { lines->example(1); }), "'" + folder / "t.txt" + "', line 3, byte 3: this is not UTF-8");
}

}  // namespace
}  // namespace keel
