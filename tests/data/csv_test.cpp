#include "keel/data/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "keel/data/number_text.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

class Csv : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "t.csv") const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  DatasetPtr open(const std::string& text, const CsvOptions& options = {}) const {
    return open_csv(write(text), options);
  }
  // What opening it or reading each line says, without the path.
  std::string refusal(const std::string& text, const CsvOptions& options = {}) const {
    std::string message = error_of([&] {
      const DatasetPtr data = open(text, options);
      for (std::int64_t i = 0; i < data->size(); ++i) data->example(i);
    });
    const std::string path = "'" + folder_ / "t.csv" + "', ";
    return message.starts_with(path) ? message.substr(path.size()) : message;
  }

  TemporaryFolder folder_;
};

TEST_F(Csv, HasAFieldForEachColumnUnlessFieldsAreNamed) {
  const DatasetPtr data = open("x,name,y\n1,Ann,2.5\n-3,Bob,4e2\n");
  ASSERT_EQ(data->size(), 2);
  EXPECT_EQ(data->example(0), Example().set("x", 1.0).set("name", "Ann").set("y", 2.5));
  EXPECT_EQ(data->example(1), Example().set("x", -3.0).set("name", "Bob").set("y", 400.0));
}

TEST_F(Csv, MakesFieldsOfColumnsListsAndRanges) {
  const std::string text = "p0,p1,p2,label,id,w\n0,1,2,7,007,x\n3,4,5,8,12,y\n";
  const DatasetPtr data = open(text, {.fields = {{"pixels", "p0..p2"},
                                                 {"back", "p2,p0"},
                                                 {"label", "#label"},
                                                 {"ids", "#label,p1"},
                                                 {"id", "$id"},
                                                 {"word", "w"}}});
  EXPECT_EQ(data->example(1), Example()
                                  .set("pixels", Numbers{{3}, {3, 4, 5}})
                                  .set("back", Numbers{{2}, {5, 3}})
                                  .set("label", 8)
                                  .set("ids", Integers{{2}, {8, 4}})
                                  .set("id", "12")
                                  .set("word", "y"));
  EXPECT_EQ(data->example(0).integer("label"), 7);
  const DatasetPtr padded = open("p08,p09,p10\n1,2,3\n", {.fields = {{"p", "p08..p10"}}});
  EXPECT_EQ(padded->example(0), Example().set("p", Numbers{{3}, {1, 2, 3}}));
}

TEST_F(Csv, ReadsQuotesAsRfc4180Has) {
  const DatasetPtr data = open("\"a\",\"b,\"\"\"\r\n\"x\ny\",\"1\"\r\n\r\n\"\",\" 2 \"\r\n\"say \"\"hi\"\"\",3");
  ASSERT_EQ(data->size(), 3);
  EXPECT_EQ(data->example(0), Example().set("a", "x\ny").set("b,\"", 1.0));
  EXPECT_EQ(data->example(1), Example().set("a", "").set("b,\"", 2.0));
  EXPECT_EQ(data->example(2), Example().set("a", "say \"hi\"").set("b,\"", 3.0));
}

TEST_F(Csv, IsReadWithoutAHeaderAndByTabs) {
  const CsvOptions options = {.fields = {{"x", "0"}, {"y", "#1"}}, .header = false};
  EXPECT_EQ(open("1.5,2\n3,4\n", options)->example(0), Example().set("x", 1.5).set("y", 2));
  EXPECT_EQ(open_csv(write("a\tb,c\n1\t2\n", "t.tsv"))->example(0), Example().set("a", 1.0).set("b,c", 2.0));
  EXPECT_EQ(open("a;b\n1;2,5\n", {.separator = ';'})->example(0), Example().set("a", 1.0).set("b", "2,5"));
  EXPECT_EQ(open("", {.header = false})->size(), 0);
  EXPECT_EQ(open("a,b\n")->size(), 0);
}

// A writer of its own: what it has written is read back.
TEST_F(Csv, RoundTripIsTheIdentity) {
  std::mt19937_64 engine(3);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  const auto quoted = [](const std::string& cell) {
    std::string text = "\"";
    for (const char byte : cell) text += byte == '"' ? "\"\"" : std::string(1, byte);
    return text + '"';
  };
  std::string text = "number,text,whole\n";
  std::vector<Example> wanted;
  for (int i = 0; i < 3000; ++i) {
    std::string cell(below(30), ' ');
    constexpr std::string_view kBytes = "ab,\"\n\r\t;";
    for (char& byte : cell) byte = kBytes[below(kBytes.size())];
    if (i == 0) cell = "words";
    const double number = std::ldexp(static_cast<double>(engine()), static_cast<int>(below(200)) - 130);
    const auto whole = static_cast<std::int64_t>(engine());
    char written[40];
    std::snprintf(written, sizeof written, "%.17g", number);
    text += concat(below(2) ? written : quoted(written), ',', quoted(cell), ',', whole, below(2) ? "\n" : "\r\n");
    wanted.push_back(Example().set("number", number).set("text", cell).set("whole", whole));
  }
  const DatasetPtr data = open(text, {.fields = {{"number", "number"}, {"text", "text"}, {"whole", "#whole"}}});
  ASSERT_EQ(data->size(), std::ssize(wanted));
  std::vector<std::int64_t> order;
  for (int i = 0; i < 500; ++i) order.push_back(static_cast<std::int64_t>(below(wanted.size())));
  const std::vector<Example> found = data->examples(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(found[i], wanted[static_cast<std::size_t>(order[i])]);
    EXPECT_EQ(found[i], data->example(order[i]));
  }
}

TEST_F(Csv, NamesLineAndColumnOfWhatIsWrong) {
  EXPECT_EQ(refusal("a,b\n1,2\n\n3,x\n"), "line 4, column 2 ('b'): expected a finite number, found 'x'");
  EXPECT_EQ(refusal("a,b\n1,\"y\nz\"\n\"2\n\",\"y\"\n"),
            "line 4, column 1 ('a'): expected a finite number, found '2\\x0a'");
  EXPECT_EQ(refusal("a,b\n1,2\n3,\n"), "line 3, column 2 ('b'): expected a finite number, found an empty cell");
  EXPECT_EQ(refusal("a\n1\nnan\n"), "line 3, column 1 ('a'): expected a finite number, found 'nan'");
  EXPECT_EQ(refusal("a,b\n1,2.0\n", {.fields = {{"b", "#b"}}}),
            "line 2, column 2 ('b'): expected a whole number, found '2.0'");
  EXPECT_EQ(refusal("a,b,c\n1,2,3\n4,5\n"), "line 3, column 3 ('c'): the line ends before it, with 2 columns of 3");
  EXPECT_EQ(refusal("a,b\n1,2\n4,5,6\n"),
            "line 3, column 3: the line goes on after the 2 columns that the first line has");
  EXPECT_EQ(refusal("a,b\n1,2,\n"), "line 2, column 3: the line goes on after the 2 columns that the first line has");
  EXPECT_EQ(refusal(""), "line 1: it is empty; its first line names the columns");
  EXPECT_NE(refusal("a,b\n1,2\"\n").find("line 2, byte 4"), std::string::npos);
}

TEST_F(Csv, NamesTheNearestColumnWhereOneIsMissing) {
  const std::string text = "age,label\n1,2\n";
  EXPECT_EQ(refusal(text, {.fields = {{"x", "lable"}}}),
            "line 1: there is no column 'lable'; did you mean 'label'? There are 2: age, label");
  EXPECT_EQ(refusal(text, {.fields = {{"x", "p0..p3"}}}), "line 1: there is no column 'p0'. There are 2: age, label");
  EXPECT_EQ(refusal("a,a\n1,2\n"), "line 1: two columns are named 'a'");
  EXPECT_EQ(refusal("a,a,b\n1,2,3\n", {.fields = {{"b", "b"}}}), "");
  EXPECT_NE(refusal(text, {.fields = {{"x", "age"}, {"x", "label"}}}).find("two fields"), std::string::npos);
  EXPECT_NE(refusal(text, {.fields = {{"x", "$age,label"}}}).find("one column, not of 2"), std::string::npos);
  EXPECT_NE(error_of([&] { open_csv(folder_ / "none.csv"); }).find("none.csv"), std::string::npos);
}

TEST_F(Csv, FingerprintIsOfTheBytesAndOfWhatIsReadOfThem) {
  const std::string text = "a,b\n1,2\n";
  const auto print = [&](const std::string& bytes, const CsvOptions& options = {}) {
    return open(bytes, options)->fingerprint();
  };
  EXPECT_EQ(print(text), print(text));
  EXPECT_NE(print(text), print("a,b\n1,3\n"));
  EXPECT_NE(print(text), print(text, {.fields = {{"a", "a"}}}));
  EXPECT_NE(print(text, {.fields = {{"a", "b"}}}), print(text, {.fields = {{"a", "a"}}}));
  EXPECT_NE(print(text, {.fields = {{"a", "#a"}}}), print(text, {.fields = {{"a", "a"}}}));
}

TEST_F(Csv, ThatShrinksIsAnErrorAndNoSignal) {
  std::string text = "a\n";
  for (int i = 0; i < 100000; ++i) text += "1234567\n";
  const DatasetPtr data = open(text);
  std::filesystem::resize_file(folder_ / "t.csv", 5000);
  EXPECT_NE(error_of([&] { data->example(90000); }).find("cut short"), std::string::npos);
}

TEST(NumberText, IsReadAsTheLibraryReadsIt) {
  std::mt19937_64 engine(9);
  const auto check = [](const std::string& text) {
    const TextNumber number = read_number(text);
    char* end = nullptr;
    const double wanted = std::strtod(text.c_str(), &end);
    EXPECT_EQ(number.value, wanted) << text;
    EXPECT_EQ(std::signbit(number.value), std::signbit(wanted)) << text;
    EXPECT_EQ(number.bytes, static_cast<std::size_t>(end - text.c_str())) << text;
    // What comes far behind it changes nothing.
    for (const char* behind : {"\n7777777777777777777", "11111111111111111111", ".5eeeeeeeeeeeeeeeeee"}) {
      const std::string longer = text + behind;
      const TextNumber cut = read_number(std::string_view(longer).substr(0, text.size()), longer.size());
      EXPECT_EQ(cut.bytes, number.bytes) << longer;
      EXPECT_EQ(std::bit_cast<std::uint64_t>(cut.value), std::bit_cast<std::uint64_t>(number.value)) << longer;
    }
    const TextNumber before_others = read_number(text + ",                 1");
    EXPECT_EQ(before_others.value, wanted) << text;
    EXPECT_EQ(before_others.bytes, number.bytes) << text;
  };
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t digits = engine() >> (engine() % 64);
    std::string text = std::to_string(digits);
    if (engine() % 2) text.insert(engine() % (text.size() + 1), ".");
    if (engine() % 4 == 0) text.insert(0, std::string(engine() % 25, '0'));
    if (engine() % 4 == 0) text += concat(engine() % 2 ? 'e' : 'E', engine() % 2 ? "-" : "", engine() % 330);
    if (engine() % 4 == 0) text += engine() % 2 ? "," : "e";
    check(engine() % 2 ? "-" + text : text);
  }
  for (const char* text : {"0", "-0", "1.", ".5", "-.5e3", "9007199254740993", "9007199254740992", "1e400", "-1e400",
                           "1e-400", "4.9e-324", "0.1", "1e22", "1e23", "123456789012345678901234567890",
                           "0.00000000000000000000001", "0.0000000000000000000000000001"})
    check(text);
  for (const char* none : {"", "-", ".", "-.", "e5", "+1", " 1", "abc"}) EXPECT_EQ(read_number(none).bytes, 0u) << none;
}

TEST_F(Csv, OfAHeaderAloneKnowsItsColumns) {
  for (const char* text : {"age,label\n", "age,label"}) {
    EXPECT_EQ(open(text, {.fields = {{"x", "label"}}})->size(), 0);
    EXPECT_EQ(refusal(text, {.fields = {{"x", "agee"}}}),
              "line 1: there is no column 'agee'; did you mean 'age'? There are 2: age, label");
  }
  const CsvOptions bare = {.header = false};
  EXPECT_EQ(open("5,6\n", bare)->example(0), Example().set("0", 5.0).set("1", 6.0));
}

TEST_F(Csv, ListsTwentyColumnsAndCountsTheOthers) {
  const auto listed = [&](int columns) {
    std::string header, list;
    for (int i = 0; i < columns; ++i) {
      header += concat(i == 0 ? "" : ",", 'c', i);
      if (i < 20) list += concat(i == 0 ? "" : ", ", 'c', i);
    }
    const std::string message = refusal(header + "\n", {.fields = {{"x", "nothing like it"}}});
    const std::string begin = concat("line 1: there is no column 'nothing like it'. There are ", columns, ": ", list);
    EXPECT_TRUE(message.starts_with(begin)) << message;
    return message.substr(std::min(message.size(), begin.size()));
  };
  EXPECT_EQ(listed(19), "");
  EXPECT_EQ(listed(20), "");
  EXPECT_EQ(listed(21), " and 1 more");
  EXPECT_EQ(listed(40), " and 20 more");
}

TEST_F(Csv, CountsTheColumnsOfARangeUpToAMillion) {
  const auto refused = [&](const char* range) { return refusal("a,b\n1,2\n", {.fields = {{"x", range}}}); };
  EXPECT_EQ(refused("p0..p1000000"), "the columns 'p0..p1000000' are more than a million");
  EXPECT_EQ(open("p9,p10\n1,2\n", {.fields = {{"x", "p9..p10"}}})->example(0),
            Example().set("x", Numbers{{2}, {1, 2}}));
  EXPECT_EQ(open("p9,q\n1,2\n", {.fields = {{"x", "p9..p9"}}})->example(0), Example().set("x", 1.0));
  EXPECT_NE(refused("p2..p1").find("there is no column 'p2..p1'"), std::string::npos);
  EXPECT_NE(refused("p1..q2").find("there is no column 'p1..q2'"), std::string::npos);
}

// A first line of more columns than there are names for: a word of bits, and several.
TEST_F(Csv, RefusesAFirstLineThatIsLongerThanTheHeader) {
  for (const int columns : {1, 63, 64, 65, 128, 192}) {
    std::string header = "c0", line = "1";
    for (int i = 1; i < columns; ++i) {
      header += concat(",c", i);
      line += ",1";
    }
    EXPECT_EQ(refusal(header + "\n" + line + "\n"), "");
    EXPECT_EQ(refusal(header + "\n" + line + ",x\n"),
              concat("line 2, column ", columns + 1, ": the line goes on after the ", columns,
                     " columns that the first line has"));
  }
}

// What was read before may stand behind the end of a file, and be quotes.
TEST_F(Csv, EndsACellWhereTheFileEnds) {
  const std::string cell(49, '"');
  for (int lines = 41; lines < 82; ++lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += concat(i == 0 ? "" : "\n", std::string(100, '"'));
    const DatasetPtr data = open(text, {.fields = {{"c", "$0"}}, .header = false});
    const std::vector<std::int64_t> ends = {0, lines - 1};
    const std::vector<Example> found = data->examples(ends);
    ASSERT_EQ(found[0], Example().set("c", cell)) << lines;
    ASSERT_EQ(found[1], Example().set("c", cell)) << lines;
  }
}

TEST_F(Csv, RefusesACarriageReturnBehindAQuoteInTheMidstOfALine) {
  const std::string what = ": the quote that opens here is closed in the midst of a cell, or never";
  EXPECT_EQ(refusal("a,b\n1,2\n\"3\"\r4,5\n"), "line 3, column 1 ('a')" + what);
  EXPECT_EQ(refusal("a,b\n1,2\n3,\"4\"\r5\n"), "line 3, column 2 ('b')" + what);
  EXPECT_EQ(refusal("a,b,c\n1,x,y\n3,\"4\",\"5\"\r6\n"), "line 3, column 3 ('c')" + what);
  EXPECT_EQ(refusal("a,b\n1,2\n3,\"4\"\r\n"), "");
}

}  // namespace
}  // namespace keel
