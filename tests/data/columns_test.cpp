#include "keel/data/columns.h"

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <random>

#include "keel/data/columns_format.h"
#include "keel/data/crc32.h"
#include "keel/data/crc32_ways.h"
#include "keel/data/jsonl.h"
#include "keel/runtime/file.h"
#include "keel/runtime/processor.h"
#include "tests/data/list_dataset.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// Every kind of column, with fields that are missing here and there.
std::vector<Example> some_examples(std::int64_t count) {
  std::mt19937 engine(7);
  std::vector<Example> examples;
  for (std::int64_t i = 0; i < count; ++i) {
    Example example;
    example.set("x", 0.1 * static_cast<double>(i)).set("n", i - 3);
    if (i % 3 != 1) example.set("text", "line " + std::string(engine() % 50, 'a' + static_cast<char>(i % 26)));
    std::vector<std::int64_t> ids(engine() % 20);
    for (std::int64_t& id : ids) id = static_cast<std::int64_t>(engine() % 50257);
    const auto length = std::ssize(ids);
    example.set("ids", Integers{{length}, ids});
    example.set("image", Numbers{{2, 3}, {1, 2, 3, 4, 5, static_cast<float>(i)}});
    if (i % 5 == 0) example.set("big", Integers{{2}, {i, std::int64_t{1} << 40}});
    examples.push_back(std::move(example));
  }
  return examples;
}

DatasetPtr listed(std::vector<Example> examples) { return std::make_shared<testing::ListDataset>(std::move(examples)); }

// The same fields in the order of the columns, as a file has them.
bool same_fields(const Example& a, const Example& b) {
  if (a.fields().size() != b.fields().size()) return false;
  for (const auto& [name, value] : a.fields()) {
    const Value* other = b.find(name);
    if (other == nullptr) return false;
    // A columnar file has lists and objects as the texts that they are written in.
    const auto* nested = std::get_if<Nested>(other);
    if ((nested != nullptr ? Value(nested->json) : *other) != value) return false;
  }
  return true;
}

TEST(Crc32, IsThatOfTheStandard) {
  const auto of = [](std::string_view text) { return crc32(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of("123456789"), 0xcbf43926u);
  EXPECT_EQ(of(""), 0u);
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i);
  for (std::size_t cut = 0; cut < 30; ++cut)
    EXPECT_EQ(crc32(std::as_bytes(std::span(text).subspan(cut)), of(text.substr(0, cut))), of(text)) << cut;
}

TEST(Crc32, IsTheRemainderByThePolynomialBitByBit) {
  if (!multiplies_without_carry()) std::cout << "left out: products, which this processor has not\n";
  std::mt19937 engine(7);
  std::vector<std::byte> bytes(700);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  std::uint32_t wanted = ~0u;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    EXPECT_EQ(crc32(std::span(bytes).first(size)), ~wanted) << size;
    EXPECT_EQ(remainder_by_tables(std::span(bytes).first(size), ~0u), wanted) << size;
#if defined(__x86_64__)
    if (multiplies_without_carry() && size >= kLeastProducts) {
      EXPECT_EQ(remainder_by_products(std::span(bytes).first(size), ~0u), wanted) << size;
    }
#endif
    EXPECT_EQ(crc32(std::span(bytes).subspan(size / 3, size - size / 3), crc32(std::span(bytes).first(size / 3))),
              ~wanted)
        << size;
    if (size == bytes.size()) break;
    wanted ^= std::to_integer<std::uint32_t>(bytes[size]);
    for (int bit = 0; bit < 8; ++bit) wanted = (wanted >> 1) ^ (0xedb88320u & (0u - (wanted & 1)));
  }
}

TEST(Columns, GiveBackWhatWasWritten) {
  const TemporaryFolder folder;
  for (const std::int64_t count : {0, 1, 500}) {
    const std::vector<Example> examples = some_examples(count);
    if (count == 0) ColumnsWriter(folder / "c", {{.name = "x"}}).commit();
    else write_columns(folder / "c", *listed(examples));
    const DatasetPtr data = open_columns(folder / "c");
    ASSERT_EQ(data->size(), count);
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    const std::vector<Example> read = data->examples(order);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto row = static_cast<std::size_t>(order[i]);
      EXPECT_TRUE(same_fields(read[i], examples[row])) << row;
      EXPECT_EQ(data->example(order[i]), read[i]);
      const std::int64_t ids = std::ssize(std::get<Integers>(examples[row]["ids"]).values);
      const std::int64_t text = examples[row].has("text") ? std::ssize(examples[row].text("text")) : 0;
      EXPECT_EQ(data->length(order[i]), std::max({ids, text, std::int64_t{6}})) << row;
    }
  }
}

TEST(Columns, AreFoundForExamples) {
  const std::vector<Column> columns = columns_for(*listed(some_examples(50)));
  const std::vector<Column> wanted = {
      {.name = "x", .type = ColumnType::f64},
      {.name = "n", .type = ColumnType::i32},
      {.name = "text", .type = ColumnType::text, .nullable = true},
      {.name = "ids", .type = ColumnType::i32, .form = ColumnForm::list},
      {.name = "image", .type = ColumnType::f32, .form = ColumnForm::fixed, .shape = {2, 3}},
      {.name = "big", .type = ColumnType::i64, .form = ColumnForm::fixed, .shape = {2}, .nullable = true}};
  EXPECT_EQ(columns, wanted);
  EXPECT_EQ(columns_from(text_of(wanted)), wanted);
  EXPECT_EQ(error_of([] {
              columns_for(*listed({Example().set("a", 1.5), Example().set("a", "b")}));
            }),
            "field 'a' of example 1 is a text, and of example 0 it is a number; a column holds one kind");
}

TEST(Columns, ReadOnlyTheFieldsThatAreAskedFor) {
  const TemporaryFolder folder;
  write_columns(folder / "c", *listed(some_examples(20)));
  const DatasetPtr data = open_columns(folder / "c", {.fields = {"n", "x"}});
  EXPECT_EQ(data->example(4), Example().set("n", 1).set("x", 0.1 * 4));
  EXPECT_NE(data->fingerprint(), open_columns(folder / "c")->fingerprint());
  EXPECT_EQ(error_of([&] { open_columns(folder / "c", {.fields = {"y"}}); }),
            "'" + folder / "c" + "' has no field 'y'; it has x, n, text, ids, image, big");
}

TEST(Columns, HaveAFingerprintOfTheirContents) {
  const TemporaryFolder folder;
  const auto of = [&](double last) {
    std::vector<Example> examples = some_examples(20);
    examples.push_back(Example()
                           .set("x", last)
                           .set("n", 1)
                           .set("ids", Integers{{0}, {}})
                           .set("image", Numbers{{2, 3}, {0, 0, 0, 0, 0, 0}}));
    write_columns(folder / "c", *listed(examples));
    return open_columns(folder / "c")->fingerprint();
  };
  EXPECT_EQ(of(1), of(1));
  EXPECT_NE(of(1), of(2));
}

TEST(Columns, RefuseValuesThatAreNone) {
  const TemporaryFolder folder;
  ColumnsWriter writer(folder / "c",
                       {{.name = "n", .type = ColumnType::u8},
                        {.name = "v", .type = ColumnType::f32, .form = ColumnForm::fixed, .shape = {2}},
                        {.name = "s", .type = ColumnType::i32, .form = ColumnForm::list, .nullable = true}});
  const auto refusal = [&](const Example& example) { return error_of([&] { writer.append(example); }); };
  const Numbers v{{2}, {1, 2}};
  EXPECT_EQ(refusal(Example().set("n", 255).set("v", v)), "");
  EXPECT_EQ(refusal(Example().set("n", 256).set("v", v)),
            "row 1, column 'n': 256 does not fit in the type of the column");
  EXPECT_EQ(refusal(Example().set("n", 1.5).set("v", v)), "row 1, column 'n': expected a whole number, found a number");
  EXPECT_EQ(refusal(Example().set("n", 1).set("v", Numbers{{3}, {1, 2, 3}})),
            "row 1, column 'v': expected numbers (2), found numbers (3)");
  EXPECT_EQ(refusal(Example().set("n", 1)), "row 1, column 'v': it is missing");
  EXPECT_EQ(refusal(Example().set("n", 1).set("v", v).set("z", 1)), "row 1 has a field 'z', which is no column");
  EXPECT_EQ(refusal(Example().set("n", 1).set("v", v).set("s", "t")),
            "row 1, column 's': expected a sequence of whole numbers, found a text");
  EXPECT_FALSE(std::filesystem::exists(folder / "c")) << "before commit()";
  writer.commit();
  EXPECT_EQ(open_columns(folder / "c")->size(), 1) << "what was refused left nothing";
  EXPECT_NE(error_of([&] { ColumnsWriter(folder / "d", {{.name = "a"}, {.name = "a"}}); }), "");
  EXPECT_NE(error_of([&] { ColumnsWriter(folder / "d", {}); }), "");
}

// The file with a header and directory that are as its writer would have sealed them after `change`.
std::string resealed(std::string file, const std::function<void(ColumnsHeader&, std::string& file)>& change) {
  ColumnsHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  change(header, file);
  const auto at = [&](std::uint64_t begin, std::uint64_t end) {
    return std::as_bytes(std::span(file).subspan(begin, end - begin));
  };
  header.schema_crc = crc32(at(header.schema_at, header.directory_at));
  header.directory_crc = crc32(at(header.directory_at, file.size()));
  header.crc = crc_of(header);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

TEST(Columns, NoticeDamageAndCuts) {
  const TemporaryFolder folder;
  write_columns(folder / "c", *listed(some_examples(6)));
  const std::string good = read_text_file(folder / "c");
  const auto refusal = [&](const std::string& bytes) {
    std::ofstream(folder / "bad", std::ios::binary) << bytes;
    const std::string message = error_of([&] {
      const DatasetPtr data = open_columns(folder / "bad");
      for (std::int64_t i = 0; i < data->size(); ++i) data->example(i);
    });
    EXPECT_TRUE(message.starts_with("'" + folder / "bad" + "' is not a valid columnar file: ")) << message;
  };
  for (std::size_t size = 0; size < good.size(); size += size < 70 ? 1 : 13) refusal(good.substr(0, size));
  for (std::size_t at = 0; at < good.size(); at += at < 70 ? 1 : 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    refusal(bad);
  }
  refusal(good + "x");
}

TEST(Columns, RefuseADirectoryThatLies) {
  const TemporaryFolder folder;
  write_columns(folder / "c", *listed(some_examples(6)));
  const std::string good = read_text_file(folder / "c");
  const auto refusal = [&](const std::function<void(ColumnsHeader&, std::string & file)>& change) {
    std::ofstream(folder / "bad", std::ios::binary) << resealed(good, change);
    return error_of([&] { open_columns(folder / "bad")->example(0); });
  };
  EXPECT_EQ(refusal([](ColumnsHeader&, std::string&) {}), "");
  EXPECT_NE(refusal([](ColumnsHeader& header, std::string&) { header.rows = 7; }).find("blocks have 6 rows"),
            std::string::npos);
  EXPECT_NE(refusal([](ColumnsHeader& header, std::string&) { header.blocks = ~0ull / 8; }).find("directory has"),
            std::string::npos);
  EXPECT_NE(refusal([](ColumnsHeader& header, std::string&) { header.version = 2; }).find("version is 2"),
            std::string::npos);
  EXPECT_NE(refusal([](ColumnsHeader& header, std::string& file) {
              const std::uint64_t far = ~0ull - 8;
              std::memcpy(file.data() + header.directory_at + sizeof(BlockEntry), &far, sizeof far);
            }).find("not before the list of columns"),
            std::string::npos);
  EXPECT_NE(refusal([](ColumnsHeader& header, std::string& file) {
              const std::uint32_t rows = 0;
              std::memcpy(file.data() + header.directory_at, &rows, sizeof rows);
            }).find("block 0 has 0 rows"),
            std::string::npos);
}

TEST(Columns, OfAFileThatShrinksAreAnError) {
  const TemporaryFolder folder;
  write_columns(folder / "c", *listed(some_examples(2000)));
  const DatasetPtr data = open_columns(folder / "c");
  data->example(1999);
  std::filesystem::resize_file(folder / "c", 100);
  EXPECT_NE(error_of([&] { data->example(1999); }).find(folder / "c"), std::string::npos);
}

// What the script says; its exit code in `code`.
std::string import_dataset(const std::string& words, int& code, const std::string& python = "python3") {
  const TemporaryFolder folder;
  const std::string said = folder / "said";
  const int status =
      std::system(concat(python, " " KEEL_SOURCE_DIR "/scripts/import-dataset ", words, " >", said, " 2>&1").c_str());
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return read_text_file(said);
}

// A Python that can import the package; empty where there is none. KEEL_PYTHON names one that is not in PATH.
std::string python_with(const std::string& package) {
  const char* named = std::getenv("KEEL_PYTHON");
  for (const std::string& python : {std::string(named == nullptr ? "python3" : named), std::string("python3")})
    if (std::system(concat(python, " -c 'import ", package, "' >/dev/null 2>&1").c_str()) == 0) return python;
  return {};
}

TEST(ImportDataset, WritesJsonLinesAsTheirReaderTakesThem) {
  if (python_with("json").empty()) GTEST_SKIP() << "there is no python3";
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 600; ++i)
    lines += concat("{\"text\": \"line \\u00e9 ", i, "\", \"ids\": [", i,
                    ", 70000], \"yes\": true, \"x\": 0.25, \"o\": ", i % 2 == 0 ? "null" : "{\"a\": [\"b\"]}",
                    ", \"m\": [[1, 2], [3.5, 4]]}\n");
  write_text_file(folder / "a.jsonl", lines);
  int code = 0;
  const std::string said = import_dataset(concat(folder / "a.jsonl", " --out ", folder / "a.keel"), code);
  ASSERT_EQ(code, 0) << said;
  EXPECT_EQ(said, concat(folder / "a.keel", ": 600 rows of text, ids, yes, x, m, o\n"));
  const DatasetPtr columns = open_columns(folder / "a.keel"), jsonl = open_jsonl(folder / "a.jsonl");
  ASSERT_EQ(columns->size(), jsonl->size());
  for (std::int64_t i = 0; i < columns->size(); ++i)
    ASSERT_TRUE(same_fields(columns->example(i), jsonl->example(i))) << i;
  EXPECT_NE(import_dataset(concat(folder / "a.jsonl --columns ids,y --out ", folder / "b.keel"), code)
                .find("there is no column 'y'; there are ids"),
            std::string::npos);
  EXPECT_EQ(code, 2);
}

TEST(ImportDataset, NamesTheLineThatItCannotTakeAndLeavesNoFile) {
  if (python_with("json").empty()) GTEST_SKIP() << "there is no python3";
  const TemporaryFolder folder;
  write_text_file(folder / "a.jsonl", "{\"a\": 1}\n\n{\"a\": \"x\"}\n");
  int code = 0;
  EXPECT_EQ(
      import_dataset(concat(folder / "a.jsonl", " --out ", folder / "a.keel"), code),
      concat("import-dataset: '", folder / "a.jsonl", "', line 3: 'a' is of another kind than in the lines before\n"));
  EXPECT_EQ(code, 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ImportDataset, ReadsParquet) {
  const std::string python = python_with("pyarrow.parquet");
  if (python.empty()) GTEST_SKIP() << "no python3 here can import pyarrow; KEEL_PYTHON may name another one";
  const TemporaryFolder folder;
  write_text_file(folder / "make.py", R"(import sys
import pyarrow as pa, pyarrow.parquet as pq
n = 5000
table = pa.table({
    "text": ["row %d" % i if i % 7 else None for i in range(n)],
    "label": pa.array([i % 5 for i in range(n)], pa.int8()),
    "ids": pa.array([list(range(i % 9)) for i in range(n)], pa.list_(pa.int32())),
    "pair": pa.array([[i, 0.5] for i in range(n)], pa.list_(pa.float32(), 2)),
    "word": pa.array(["ab"[i % 2] for i in range(n)]).dictionary_encode(),
    "day": pa.array([i for i in range(n)], pa.date32())})
pq.write_table(table, sys.argv[1])
)");
  ASSERT_EQ(std::system(concat(python, ' ', folder / "make.py", ' ', folder / "t.parquet").c_str()), 0);
  int code = 0;
  EXPECT_NE(import_dataset(concat(folder / "t.parquet", " --out ", folder / "t.keel"), code, python)
                .find("column 'day' is of the type date32[day], which keel's files do not have"),
            std::string::npos);
  EXPECT_EQ(code, 2);
  const std::string said = import_dataset(
      concat(folder / "t.parquet", " --columns text,label,ids,pair,word --out ", folder / "t.keel"), code, python);
  ASSERT_EQ(code, 0) << said;
  const DatasetPtr data = open_columns(folder / "t.keel");
  ASSERT_EQ(data->size(), 5000);
  for (const std::int64_t i : {0, 1, 13, 4999}) {
    Example wanted;
    if (i % 7 != 0) wanted.set("text", concat("row ", i));
    std::vector<std::int64_t> ids(static_cast<std::size_t>(i % 9));
    std::iota(ids.begin(), ids.end(), 0);
    wanted.set("label", i % 5).set("ids", Integers{{i % 9}, ids});
    wanted.set("pair", Numbers{{2}, {static_cast<float>(i), 0.5f}}).set("word", i % 2 == 0 ? "a" : "b");
    EXPECT_EQ(data->example(i), wanted) << i;
  }
}

}  // namespace
}  // namespace keel
