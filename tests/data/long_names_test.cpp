// Names and texts of files may be of any length; messages show the beginning and how much they leave out.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "keel/data/batch.h"
#include "keel/data/collator.h"
#include "keel/data/columns.h"
#include "keel/data/columns_format.h"
#include "keel/data/csv.h"
#include "keel/data/document_rows.h"
#include "keel/data/jsonl.h"
#include "keel/data/packing.h"
#include "keel/data/split.h"
#include "tests/data/list_dataset.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::ListDataset;
using testing::TemporaryFolder;

constexpr std::size_t kLong = 100;

std::string long_name(char letter, std::size_t length = kLong) { return std::string(length, letter); }

std::int64_t times_in(const std::string& text, const std::string& what) {
  std::int64_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++times;
  return times;
}

// The letters whose long names the message of f has, each cut at `most` bytes, and nothing else that is cut.
template <class F>
void expect_cut(const std::string& letters, F&& f, std::size_t most = 64) {
  const std::string message = error_of(f);
  EXPECT_EQ(times_in(message, " more bytes)"), std::ssize(letters)) << message;
  std::size_t at = 0;
  for (const char letter : letters) {
    const std::string shown = concat(std::string(most, letter), "... (", kLong - most, " more bytes)");
    at = message.find(shown, at);
    EXPECT_TRUE(at != std::string::npos && message[at - 1] != letter) << letter << ": " << message;
    if (at == std::string::npos) return;
    at += shown.size();
  }
}

DatasetPtr in_memory(std::vector<Example> examples) { return std::make_shared<ListDataset>(std::move(examples)); }

Integers ids(std::int64_t count) { return {{count}, std::vector<std::int64_t>(static_cast<std::size_t>(count), 7)}; }

TEST(LongNames, OfFieldsAreCutWhereAnExampleOrABatchLacksThem) {
  const std::string a = long_name('a'), b = long_name('b');
  expect_cut("a", [&] { Example().set(a, 1).set(a, 2); });
  expect_cut("ab", [&] { (void)Example().set(b, 1)[a]; });
  expect_cut("aa", [&] { (void)Example().set(a, 1.5).integer(a); });
  expect_cut("xx", [&] { (void)Example().set(long_name('x'), "t").number(long_name('x')); });
  expect_cut(
      "c", [&] { (void)Example().set("n", Nested{long_name('c')}).text("n"); }, 40);
  Batch batch(testing::context(), 0, 1);
  expect_cut("-", [&] { batch.set(long_name('-'), Tensor()); });
  expect_cut("-", [&] { batch.set_weight(long_name('-'), 1); });
  expect_cut("a", [&] { (void)batch[a]; });
  expect_cut("a", [&] { (void)batch.weight(a); });
}

TEST(LongNames, ThatAreProposedAreCut) {
  // Only what is shown of the wrong name is compared.
  const std::string there(66, 'a'), wrong = std::string(64, 'a') + std::string(36, 'b');
  const std::string shown = std::string(64, 'a') + "... (2 more bytes)";
  EXPECT_EQ(error_of([&] { (void)Example().set(there, 1)[wrong]; }),
            concat("the example has no field '", std::string(64, 'a'), "... (36 more bytes)'; did you mean '", shown,
                   "'?; it has ", shown, " (a whole number)"));
  const TemporaryFolder folder;
  std::ofstream(folder / "t.csv") << there << "\n1\n";
  EXPECT_EQ(error_of([&] {
              open_csv(folder / "t.csv", {.fields = {{"x", wrong}}});
            }),
            concat("'", folder / "t.csv", "', line 1: there is no column '", std::string(64, 'a'),
                   "... (36 more bytes)'; did you mean '", shown, "'? There are 1: ", shown));
}

TEST(LongNames, OfFieldsAreCutWhereABatchCannotBeMade) {
  const std::string a = long_name('a');
  const auto stacked = [](const std::vector<Example>& examples) {
    std::vector<CollatedRow> rows;
    for (const Example& example : examples) rows.push_back({example, 0, 0, 0});
    const Context context = testing::context();
    Batch batch(context, 0, std::ssize(examples));
    stack()(rows, {context, 0}, batch);
  };
  expect_cut("aa", [&] { stacked({Example().set(a, ids(2)), Example().set(a, ids(3))}); });
  expect_cut("a", [&] { stacked({Example().set(a, 1), Example()}); });
  expect_cut("a", [&] { stacked({Example(), Example().set(a, 1)}); });
  expect_cut("a", [&] { stacked({Example().set(a, std::int64_t{1} << 40)}); });
}

TEST(LongNames, OfFieldsAreCutWhereNoRowsAreMadeOfThem) {
  const std::string a = long_name('a'), b = long_name('b');
  const DatasetPtr text = in_memory({Example().set(a, "t")});
  const DatasetPtr uneven = in_memory({Example().set(a, ids(2)).set(b, ids(3))});
  expect_cut("a", [&] { joined_documents(text, {.length = 2, .fields = {a}}); });
  expect_cut("ba", [&] { joined_documents(uneven, {.length = 2, .fields = {a, b}}); });
  expect_cut("a", [&] { pack(text, {.length = 2, .tokens = a}); });
  expect_cut("ba", [&] { pack(uneven, {.length = 2, .tokens = a, .labels = b})->example(0); });
}

TEST(LongNames, OfColumnsAreCutWhereAColumnarFileCannotHaveThem) {
  const std::string a = long_name('a'), b = long_name('b');
  const auto listed = [](const std::string& members) {
    return [text = concat("{\"columns\": [{", members, "}]}")] { (void)columns_from(text); };
  };
  expect_cut("a", listed(concat("\"name\": \"x\", \"type\": \"", a, "\"")));
  expect_cut("a", listed(concat("\"name\": \"x\", \"form\": \"", a, "\"")));
  expect_cut("a", listed(concat("\"name\": \"x\", \"", a, "\": 1")));
  expect_cut("a", [&] { check_columns({{.name = a}, {.name = a}}); });
  expect_cut("a", [&] { check_columns({{.name = a, .type = ColumnType::text, .form = ColumnForm::list}}); });
  expect_cut("a", [&] { check_columns({{.name = a, .shape = {2}}}); });
  expect_cut("a", [&] { check_columns({{.name = a, .form = ColumnForm::fixed, .shape = {kMostElements + 1}}}); });
  expect_cut("a", [&] { columns_for(*in_memory({Example().set(a, 1), Example().set(a, "t")})); });

  const TemporaryFolder folder;
  ColumnsWriter writer(folder / "c", {{.name = a, .type = ColumnType::i32}});
  expect_cut("a", [&] { writer.append(Example()); });
  expect_cut("a", [&] { writer.append(Example().set(a, "t")); });
  expect_cut("a", [&] { writer.append(Example().set(a, std::int64_t{1} << 40)); });
  expect_cut("b", [&] { writer.append(Example().set(a, 1).set(b, 1)); });
  writer.append(Example().set(a, 1));
  writer.commit();
  expect_cut("ba", [&] { open_columns(folder / "c", {.fields = {b}}); });
  std::fstream(folder / "c", std::ios::in | std::ios::out | std::ios::binary).seekp(sizeof(ColumnsHeader)).put('!');
  expect_cut("a", [&] { open_columns(folder / "c")->example(0); });
}

TEST(LongNames, OfColumnsAndCellsOfATableAreCut) {
  const std::string a = long_name('a'), b = long_name('b'), c = long_name('c');
  const TemporaryFolder folder;
  const auto opened = [&](const std::string& text, const CsvOptions& options = {}) {
    std::ofstream(folder / "t.csv", std::ios::binary) << text;
    const DatasetPtr data = open_csv(folder / "t.csv", options);
    for (std::int64_t i = 0; i < data->size(); ++i) data->example(i);
  };
  expect_cut("ac", [&] { opened(a + "\n1\n" + c + "\n"); });
  expect_cut("cab", [&] { opened(a + "," + b + "\n1,2\n", {.fields = {{"x", c}}}); });
  expect_cut("a", [&] { opened(a + "," + a + "\n1,2\n"); });
  expect_cut("c", [&] { opened("x,y\n1,2\n", {.fields = {{c, "$x,y"}}}); });
  expect_cut("c", [&] { opened("x,y\n1,2\n", {.fields = {{c, "x"}, {c, "y"}}}); });
}

TEST(LongNames, OfMembersAndNumbersOfJsonAreCut) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "t.jsonl", std::ios::binary) << text;
    open_jsonl(folder / "t.jsonl")->example(0);
  };
  const std::string a = long_name('a');
  expect_cut("a", [&] { read(concat("{\"", a, "\": 1, \"", a, "\": 2}\n")); });
  // It is as long as the others with its exponent.
  expect_cut(
      "9", [&] { read(concat("{\"a\": ", long_name('9', kLong - 4), "e999}\n")); }, 40);
}

TEST(LongNames, OfValuesAreCutWhereASplitByThemCannotBe) {
  const std::string a = long_name('a'), b = long_name('b'), c = long_name('c');
  const DatasetPtr data = in_memory({Example().set(c, "x").set("ids", ids(1))});
  expect_cut("a", [&] { parts_by_column(*data, c, {{a}, {a}}); });
  expect_cut("ac", [&] { parts_by_column(*data, c, {{a}}); });
  expect_cut("c", [&] { parts_by_column(*in_memory({Example().set(c, ids(1))}), c, {{"1"}}); });
  expect_cut(
      "b", [&] { parts_by_column(*in_memory({Example().set("x", b)}), "x", {{"v"}}); }, 32);
}

TEST(LongNames, AreAllShownWhereTheyAreJustShortEnough) {
  const std::string just = long_name('a', 64);
  EXPECT_EQ(error_of([&] { (void)Example().number(just); }), concat("the example has no field '", just, "'"));
}

}  // namespace
}  // namespace keel
