// Which values go into which columns, and which columns hold the values of two examples: tables of all pairs.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "keel/data/columns.h"
#include "keel/data/columns_format.h"
#include "keel/data/crc32.h"
#include "keel/runtime/file.h"
#include "tests/data/list_dataset.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::ListDataset;
using testing::TemporaryFolder;

constexpr std::int64_t kBig = std::int64_t{1} << 31;  // the least that needs i64

enum class Kind { text, number, whole, numbers, wholes };
struct KindOfValue {
  Kind kind;
  Value value;
  Dims shape = {};
  bool is_big = false;
};

std::vector<KindOfValue> values_of_all_kinds() {
  const auto numbers = [](const Dims& shape) {
    const auto count = static_cast<std::size_t>(product(shape));
    return KindOfValue{Kind::numbers, Numbers{shape, std::vector<float>(count, 1.5f)}, shape};
  };
  const auto wholes = [](const Dims& shape, std::int64_t last) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(product(shape)), 3);
    values.back() = last;
    return KindOfValue{Kind::wholes, Integers{shape, values}, shape, last == kBig};
  };
  return {{Kind::text, "t"},
          {Kind::text, Nested{"[{}]"}},
          {Kind::number, 1.5},
          {Kind::whole, 7},
          {Kind::whole, kBig, {}, true},
          {Kind::whole, -kBig},
          numbers({2}),
          numbers({3}),
          numbers({1, 2}),
          numbers({2, 1}),
          wholes({2}, 4),
          wholes({2}, kBig),
          wholes({3}, 5),
          wholes({1, 2}, 5),
          wholes({2, 1}, kBig)};
}

TEST(ColumnKinds, ColumnsForTwoExamplesHoldBothOrRefuseThem) {
  for (const KindOfValue& a : values_of_all_kinds())
    for (const KindOfValue& b : values_of_all_kinds()) {
      const std::vector<Example> examples = {Example().set("x", a.value), Example().set("x", b.value),
                                             Example().set("x", a.value)};
      const auto data = std::make_shared<ListDataset>(examples);
      const std::string what = concat(kind_of(a.value), " and ", kind_of(b.value));
      const bool is_list = a.shape != b.shape;
      if (a.kind != b.kind || (is_list && (a.shape.size() != 1 || b.shape.size() != 1))) {
        EXPECT_EQ(error_of([&] { columns_for(*data); }),
                  concat("field 'x' of example 1 is ", kind_of(b.value), ", and of example 0 it is ", kind_of(a.value),
                         "; a column holds one kind"));
        continue;
      }
      Column wanted{.name = "x"};
      if (a.kind == Kind::text) wanted.type = ColumnType::text;
      if (a.kind == Kind::number) wanted.type = ColumnType::f64;
      if (a.kind == Kind::numbers) wanted.type = ColumnType::f32;
      if (a.kind == Kind::whole || a.kind == Kind::wholes)
        wanted.type = a.is_big || b.is_big ? ColumnType::i64 : ColumnType::i32;
      if (a.kind == Kind::numbers || a.kind == Kind::wholes) {
        wanted.form = is_list ? ColumnForm::list : ColumnForm::fixed;
        if (!is_list) wanted.shape = a.shape;
      }
      EXPECT_EQ(columns_for(*data), std::vector<Column>{wanted}) << what;
    }
}

TEST(ColumnKinds, AColumnThatHasBecomeAListTakesSequencesAlone) {
  const auto sequence = [](const Dims& shape) {
    return Example().set("x", Integers{shape, std::vector<std::int64_t>(static_cast<std::size_t>(product(shape)))});
  };
  for (const Dims& shape : {Dims{2}, Dims{4}, Dims{0}}) {
    const std::vector<Column> found = columns_for(ListDataset({sequence({2}), sequence({3}), sequence(shape)}));
    EXPECT_EQ(found.front().form, ColumnForm::list);
    EXPECT_EQ(found.front().shape, Dims());
  }
  EXPECT_NE(error_of([&] { columns_for(ListDataset({sequence({2}), sequence({3}), sequence({2, 2})})); }), "");
}

// What a column is asked to hold: its kind of values, as messages say it, and whether this value is one.
struct Asked {
  std::string wanted;
  bool fits;
};
Asked asked_of(const Column& column, const KindOfValue& value) {
  if (column.type == ColumnType::text) return {"a text", value.kind == Kind::text};
  const bool floats = column.type == ColumnType::f32 || column.type == ColumnType::f64;
  if (column.form == ColumnForm::single)
    return {floats ? "a number" : "a whole number", value.kind == (floats ? Kind::number : Kind::whole)};
  const bool is_kind = value.kind == (floats ? Kind::numbers : Kind::wholes);
  const std::string kind = floats ? "numbers" : "whole numbers";
  if (column.form == ColumnForm::list) return {"a sequence of " + kind, is_kind && value.shape.size() == 1};
  return {concat(kind, ' ', column.shape), is_kind && value.shape == column.shape};
}

std::vector<Column> columns_of_all_kinds() {
  std::vector<Column> columns = {{.name = "c", .type = ColumnType::text}};
  for (const ColumnType type :
       {ColumnType::f32, ColumnType::f64, ColumnType::u8, ColumnType::u16, ColumnType::i32, ColumnType::i64}) {
    columns.push_back({.name = "c", .type = type});
    columns.push_back({.name = "c", .type = type, .form = ColumnForm::list});
    for (const Dims& shape : {Dims{2}, Dims{3}, Dims{1, 2}})
      columns.push_back({.name = "c", .type = type, .form = ColumnForm::fixed, .shape = shape});
  }
  return columns;
}

TEST(ColumnKinds, AColumnTakesItsKindAndRefusesEveryOther) {
  const TemporaryFolder folder;
  for (const Column& column : columns_of_all_kinds()) {
    ColumnsWriter writer(folder / "c", {column});
    std::vector<Example> taken;
    for (const KindOfValue& value : values_of_all_kinds()) {
      const bool is_narrow = column.type != ColumnType::i64 && (value.is_big || value.value == Value(-kBig));
      const bool is_lowest = column.type == ColumnType::i32 && value.value == Value(-kBig);
      const Asked asked = asked_of(column, value);
      if (asked.fits && is_narrow && !is_lowest) continue;  // other tests are of what does not fit
      const std::string refusal = error_of([&] { writer.append(Example().set("c", value.value)); });
      if (asked.fits) {
        EXPECT_EQ(refusal, "");
        const auto* nested = std::get_if<Nested>(&value.value);
        taken.push_back(Example().set("c", nested != nullptr ? Value(nested->json) : value.value));
      } else {
        EXPECT_EQ(refusal, concat("row ", taken.size(), ", column 'c': expected ", asked.wanted, ", found ",
                                  kind_of(value.value)));
      }
    }
    writer.commit();
    const DatasetPtr data = open_columns(folder / "c");
    ASSERT_EQ(data->size(), std::ssize(taken)) << text_of({column});
    for (std::size_t i = 0; i < taken.size(); ++i)
      EXPECT_EQ(data->example(static_cast<std::int64_t>(i)), taken[i]) << text_of({column});
  }
}

TEST(ColumnKinds, WholeNumbersFitUpToTheBoundsOfTheirType) {
  struct Bounds {
    ColumnType type;
    std::int64_t least, most;
  };
  const TemporaryFolder folder;
  for (const auto& [type, least, most] :
       {Bounds{ColumnType::u8, 0, 255}, Bounds{ColumnType::u16, 0, 65535}, Bounds{ColumnType::i32, -kBig, kBig - 1},
        Bounds{ColumnType::i64, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}}) {
    for (const bool is_list : {false, true}) {
      const auto of = [&](std::int64_t number) {
        return Example().set("c", is_list ? Value(Integers{{2}, {0, number}}) : Value(number));
      };
      ColumnsWriter writer(folder / "c",
                           {{.name = "c", .type = type, .form = is_list ? ColumnForm::list : ColumnForm::single}});
      writer.append(of(least));
      writer.append(of(most));
      if (type != ColumnType::i64) {
        for (const std::int64_t beyond : {least - 1, most + 1})
          EXPECT_EQ(error_of([&] { writer.append(of(beyond)); }),
                    concat("row 2, column 'c': ", beyond, " does not fit in the type of the column"));
      }
      writer.commit();
      const DatasetPtr data = open_columns(folder / "c");
      EXPECT_EQ(data->example(0), of(least));
      EXPECT_EQ(data->example(1), of(most));
    }
  }
}

TEST(ColumnKinds, ListsOfColumnsAreReadAsTheyWereWritten) {
  for (Column column : columns_of_all_kinds())
    for (const bool nullable : {false, true}) {
      column.nullable = nullable;
      const std::vector<Column> columns = {{.name = "first"}, column};
      EXPECT_EQ(columns_from(text_of(columns)), columns);
    }
}

TEST(ColumnKinds, ShapesHaveAsManyNumbersAsARowMayAndNoMore) {
  const auto refusal = [](const Dims& shape) {
    return error_of([&] { check_columns({{.name = "c", .form = ColumnForm::fixed, .shape = shape}}); });
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 28, kRoot = 1 << 14, kHuge = std::int64_t{1} << 62;
  for (const Dims& shape : {Dims{}, Dims{0}, Dims{1}, Dims{2, 0}, Dims{0, kMost}, Dims{0, kHuge, kHuge}, Dims{kMost},
                            Dims{kRoot, kRoot}, Dims{kRoot, kRoot, 1}, Dims{1, 4, kMost / 4}})
    EXPECT_EQ(refusal(shape), "") << shape;
  for (const Dims& shape : {Dims{-1}, Dims{2, -1}, Dims{0, -1}, Dims{kMost + 1}, Dims{kRoot, kRoot + 1},
                            Dims{kRoot, kRoot, 2}, Dims{2, kMost}, Dims{kHuge, 4}, Dims{kHuge, kHuge, 0}})
    EXPECT_EQ(refusal(shape), concat("column 'c' has rows of the shape ", shape, ", more than 268435456 numbers"));
}

TEST(ColumnKinds, AFileHasAsManyColumnsAsItMayAndNoMore) {
  std::vector<Column> columns;
  EXPECT_EQ(error_of([&] { check_columns(columns); }), "there are 0 columns; 1 to 4096 are possible");
  for (int i = 0; i < 4096; ++i) columns.push_back({.name = std::to_string(i)});
  EXPECT_EQ(error_of([&] { check_columns(columns); }), "");
  columns.push_back({.name = "more"});
  EXPECT_EQ(error_of([&] { check_columns(columns); }), "there are 4097 columns; 1 to 4096 are possible");
  EXPECT_EQ(error_of([&] { check_columns({{.name = ""}}); }), "a column has no name");
  EXPECT_EQ(error_of([&] {
              check_columns({{.name = "a"}, {.name = "b"}, {.name = "a"}});
            }),
            "two columns have the name 'a'");
}

TEST(ColumnKinds, ShapesInAListOfColumnsHaveTheExtentsOfATensorAtMost) {
  const auto refusal = [](std::size_t extents) {
    std::string shape;
    for (std::size_t i = 0; i < extents; ++i) shape += i == 0 ? "1" : ",1";
    return error_of([&] {
      (void)columns_from(concat(R"({"columns": [{"name": "c", "form": "fixed", "shape": [)", shape, "]}]}"));
    });
  };
  EXPECT_EQ(refusal(kMaxRank), "");
  EXPECT_EQ(refusal(kMaxRank + 1), concat("a shape has at most ", kMaxRank, " extents, not ", kMaxRank + 1));
}

// A file of one column of lists, {1, 2}, {} and {3}, with other bytes for its chunk, whose checksum is right.
std::string with_chunk(std::string file, const std::function<void(std::string& chunk)>& change) {
  ColumnsHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  ChunkEntry entry;
  char* const entry_at = file.data() + header.directory_at + sizeof(BlockEntry);
  std::memcpy(&entry, entry_at, sizeof entry);
  std::string chunk = file.substr(entry.at, entry.bytes);
  change(chunk);
  std::memcpy(file.data() + entry.at, chunk.data(), std::min<std::size_t>(chunk.size(), entry.bytes));
  entry.bytes = static_cast<std::uint32_t>(chunk.size());
  entry.crc = crc32(std::as_bytes(std::span(chunk)));
  std::memcpy(entry_at, &entry, sizeof entry);
  header.directory_crc = crc32(std::as_bytes(std::span(file).subspan(header.directory_at)));
  header.crc = crc_of(header);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

TEST(ColumnKinds, OffsetsOfListsThatLieAreRefused) {
  const TemporaryFolder folder;
  ColumnsWriter writer(folder / "c",
                       {{.name = "c", .type = ColumnType::u16, .form = ColumnForm::list, .nullable = true}});
  const std::vector<Example> rows = {Example().set("c", Integers{{2}, {1, 2}}), Example().set("c", Integers{{0}, {}}),
                                     Example().set("c", Integers{{1}, {3}})};
  for (const Example& row : rows) writer.append(row);
  writer.commit();
  const std::string good = read_text_file(folder / "c");
  const auto refusal = [&](const std::function<void(std::string & chunk)>& change) {
    std::ofstream(folder / "bad", std::ios::binary) << with_chunk(good, change);
    return error_of([&] {
      const DatasetPtr data = open_columns(folder / "bad");
      for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(data->example(i), rows[static_cast<std::size_t>(i)]);
    });
  };
  const std::string begin =
      "'" + folder / "bad" + "' is not a valid columnar file: column 'c' of rows 0 to 2 is damaged: ";
  // One byte says which rows there are; four offsets follow, and three numbers of two bytes.
  const auto set_offset = [](std::size_t i, char value) {
    return [=](std::string& chunk) { chunk[1 + 4 * i] = value; };
  };
  EXPECT_EQ(refusal([](std::string&) {}), "");
  EXPECT_EQ(refusal(set_offset(1, 4)), begin + "row 0 of it reaches from 0 to 4 of 3");
  EXPECT_EQ(refusal(set_offset(2, 1)), begin + "row 1 of it reaches from 2 to 1 of 3");
  EXPECT_EQ(refusal(set_offset(3, 2)), begin + "it has 6 bytes of values, and 2 of 2 bytes belong there");
  EXPECT_EQ(refusal(set_offset(3, 4)), begin + "it has 6 bytes of values, and 4 of 2 bytes belong there");
  EXPECT_EQ(refusal([](std::string& chunk) { chunk.pop_back(); }),
            begin + "it has 5 bytes of values, and 3 of 2 bytes belong there");
  EXPECT_EQ(refusal([](std::string& chunk) { chunk.resize(17); }),
            begin + "it has 0 bytes of values, and 3 of 2 bytes belong there");
  EXPECT_EQ(refusal([](std::string& chunk) { chunk.resize(16); }), begin + "it has 16 bytes, too few for 3 rows");
}

}  // namespace
}  // namespace keel
