#include "keel/data/lines.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <initializer_list>

#include "keel/data/csv.h"
#include "keel/data/jsonl.h"
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

TEST(Lines, ThatAreEmptyAreRefusedWhereOthersStandBehindThem) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.tsv";
  const auto said = [&](const std::string& text) {
    write_text_file(path, text);
    std::string all;
    for (const auto& open : std::initializer_list<std::function<DatasetPtr()>>{
             [&] { return open_lines(path, {.empty_lines = EmptyLines::refused}); },
             [&] { return open_csv(path, {.header = false, .lines = {.empty_lines = EmptyLines::refused}}); },
             [&] {
               return open_csv(path, {.header = false, .quotes = false, .lines = {.empty_lines = EmptyLines::refused}});
             },
             [&] { return open_jsonl(path, {.empty_lines = EmptyLines::refused}); }}) {
      const std::string message = error_of([&] { (void)open(); });
      all += message.substr(message.empty() ? 0 : message.find("line ")).substr(0, 22) + ';';
    }
    return all;
  };
  // Of all four readers.
  const auto all_say = [](const std::string& each) { return each + ';' + each + ';' + each + ';' + each + ';'; };
  const std::string fine = all_say(""), second = all_say("line 2: the line is em");
  EXPECT_EQ(said("a\nb\n"), fine);
  EXPECT_EQ(said("a\r\nb\r\n\r\n\n"), fine);
  EXPECT_EQ(said("\xef\xbb\xbf"
                 "a\nb"),
            fine);
  EXPECT_EQ(said("a\n\nb\n"), second);
  EXPECT_EQ(said("a\r\n\r\nb\r\n"), second);
  EXPECT_EQ(said("a\n\n\nb\n\nc"), second);
  EXPECT_EQ(said("\na\n"), all_say("line 1: the line is em"));
  std::string many;
  for (int i = 0; i < 40000; ++i) many += concat("line ", i, '\n');
  EXPECT_EQ(said(many), fine);
  EXPECT_EQ(said(many + "\nx\n"), all_say("line 40001: the line i"));
}

TEST(Lines, ThatAreNotUtf8AreNamedWhenTheyAreRead) {
  const TemporaryFolder folder;
  write_text_file(folder / "t.txt", "one\n\nab\xff\n");
  const DatasetPtr lines = open_lines(folder / "t.txt");
  EXPECT_EQ(error_of([&] { lines->example(1); }), "'" + folder / "t.txt" + "', line 3, byte 3: this is not UTF-8");
}

}  // namespace
}  // namespace keel
