// Where an example lies in its file.

#include <gtest/gtest.h>

#include "keel/data/csv.h"
#include "keel/data/jsonl.h"
#include "keel/data/lines.h"
#include "keel/data/split.h"
#include "keel/runtime/file.h"
#include "tests/data/list_dataset.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

TEST(Places, AreLinesAsEditorsNumberThem) {
  const TemporaryFolder folder;
  write_text_file(folder / "t.csv", "text\n\none\n\"two\nlines\"\nthree\n");
  const DatasetPtr table = open_csv(folder / "t.csv");
  EXPECT_EQ(table->place(0), "line 3");
  EXPECT_EQ(table->place(1), "line 4");
  EXPECT_EQ(table->place(2), "line 6");
  EXPECT_EQ(chosen(table, {2, 0})->place(0), "line 6");
  EXPECT_NE(error_of([&] { (void)table->place(3); }), "");
  write_text_file(folder / "t.jsonl", "\n{\"a\": 1}\n\n{\"a\": 2}\n");
  EXPECT_EQ(open_jsonl(folder / "t.jsonl")->place(1), "line 4");
  EXPECT_EQ(open_lines(folder / "t.jsonl")->place(0), "line 2");
}

TEST(Places, OfTablesWithoutQuotesAreTheirLinesToo) {
  const TemporaryFolder folder;
  write_text_file(folder / "t.tsv", "say \"a\tb\"\"\n\"c\td\n");
  const DatasetPtr table = open_csv(folder / "t.tsv", {.header = false, .quotes = false});
  ASSERT_EQ(table->size(), 2);
  EXPECT_EQ(table->example(0), Example().set("0", "say \"a").set("1", "b\"\""));
  EXPECT_EQ(table->example(1), Example().set("0", "\"c").set("1", "d"));
  EXPECT_EQ(table->place(1), "line 2");
}

}  // namespace
}  // namespace keel
