#include "keel/data/jsonl.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "keel/data/json_line.h"
#include "keel/runtime/json.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

class Jsonl : public ::testing::Test {
 protected:
  DatasetPtr open(const std::string& text) const {
    std::ofstream(path(), std::ios::binary) << text;
    return open_jsonl(path());
  }
  std::string path() const { return folder_ / "t.jsonl"; }
  Example line(const std::string& text) const { return open(text + "\n")->example(0); }
  // What reading each line says, without the path.
  std::string refusal(const std::string& text) const {
    const std::string message = error_of([&] {
      const DatasetPtr data = open(text);
      for (std::int64_t i = 0; i < data->size(); ++i) data->example(i);
    });
    return message.starts_with("'" + path() + "', ") ? message.substr(path().size() + 4) : message;
  }

  TemporaryFolder folder_;
};

TEST_F(Jsonl, MembersAreFields) {
  EXPECT_EQ(line(R"({"text": "a\nb\u00e4\ud83d\ude00", "n": 3, "x": -2.5e1, "yes": true, "no": false, "none": null})"),
            Example().set("text", "a\nb\u00e4\U0001f600").set("n", 3).set("x", -25.0).set("yes", 1).set("no", 0));
  EXPECT_EQ(line(R"({"ids": [5, -6, 7], "empty": [], "m": [[1, 2.5], [3, 4]], "i": [[1],[2]]})"),
            Example()
                .set("ids", Integers{{3}, {5, -6, 7}})
                .set("empty", Integers{{0}, {}})
                .set("m", Numbers{{2, 2}, {1, 2.5, 3, 4}})
                .set("i", Integers{{2, 1}, {1, 2}}));
  EXPECT_EQ(line("{}"), Example());
}

TEST_F(Jsonl, WhatElseAValueIsStaysAsItIsWrittenAndIsNoText) {
  const Example example = line(
      R"({"o": {"a": [1, {"b":null}]}, "t": ["x", "\u0041"], "r": [[1], [2, 3]], "d": [1, [2]], "e": [[1], 2], "n": [1, null]})");
  EXPECT_EQ(example, Example()
                         .set("o", Nested{R"({"a": [1, {"b":null}]})"})
                         .set("t", Nested{R"(["x", "\u0041"])"})
                         .set("r", Nested{"[[1], [2, 3]]"})
                         .set("d", Nested{"[1, [2]]"})
                         .set("e", Nested{"[[1], 2]"})
                         .set("n", Nested{"[1, null]"}));
  const std::string refused = error_of([&] { (void)example.text("t"); });
  EXPECT_TRUE(refused.starts_with("field 't' of the example is a list, [\"x\", ")) << refused;
  EXPECT_NE(refused.find(", not a text; it has o (an object), t (a list)"), std::string::npos) << refused;
}

TEST_F(Jsonl, WholeNumbersOf64BitsAreWholeAndLargerOnesNumbers) {
  EXPECT_EQ(
      line(
          R"({"a": 9223372036854775807, "b": -9223372036854775808, "c": 9223372036854775808, "d": 1.0, "e": 1e2, "f": -0})"),
      Example()
          .set("a", 9223372036854775807)
          .set("b", std::numeric_limits<std::int64_t>::min())
          .set("c", 9223372036854775808.0)
          .set("d", 1.0)
          .set("e", 100.0)
          .set("f", 0));
}

TEST_F(Jsonl, NamesLineColumnAndWhatWasExpected) {
  EXPECT_EQ(refusal("{\"a\": 1}\n\n{\"a\" 1}\n"), "line 3, column 6: expected ':' after a member's name, found '1'");
  EXPECT_EQ(refusal("{\"a\": 1\n"), "line 1, column 8: expected ',' or '}' after a member, found the line's end");
  EXPECT_EQ(refusal("[1]\n"), "line 1, column 1: expected '{' of an object, found '['");
  EXPECT_EQ(refusal("{\"a\": tru}"), "line 1, column 7: expected a value, found 't'");
  EXPECT_EQ(refusal("{\"a\": 01}"), "line 1, column 8: expected no digit after a leading 0, found '1'");
  EXPECT_EQ(refusal("{\"a\": [1,]}"), "line 1, column 10: expected a value, found ']'");
  EXPECT_EQ(refusal("{\"a\": 1} x"), "line 1, column 10: expected the line's end after the object, found 'x'");
  EXPECT_EQ(refusal("{\"a\": 1,}"), "line 1, column 9: expected '\"' of a member's name, found '}'");
  EXPECT_EQ(refusal("{\"a\": \"\\x\"}"), "line 1, column 9: expected one of \"\\/bfnrtu after a backslash, found 'x'");
  EXPECT_EQ(refusal("{\"a\": \"\x01\"}"),
            "line 1, column 8: expected '\\n' or '\\u....' for a control character in a text, found '\\x01'");
  EXPECT_EQ(refusal("{\"a\": \"\xff\"}"), "line 1, column 8: expected UTF-8, found '\\xff'");
  EXPECT_EQ(refusal("{\"a\": \"\\ud800x\"}"), "line 1, column 8: expected a character, found half of a surrogate pair");
  EXPECT_EQ(refusal("{\"a\": 1e999}"), "line 1, column 7: expected a number that a double holds, found 1e999");
  EXPECT_EQ(refusal("{\"a\": 1, \"a\": 2}"), "line 1, column 10: expected another name, as the object has 'a' already");
  EXPECT_EQ(refusal("{\"a\": {\"b\": [1 2]}}"), "line 1, column 16: expected ',' or ']', found '2'");
  EXPECT_NE(refusal("{\"a\": " + std::string(70, '[') + std::string(70, ']') + "}").find("at most 64"),
            std::string::npos);
  std::string many;
  for (int i = 0; i < 40; ++i) many += concat("\"", i, "\": 1, ");
  EXPECT_NE(refusal("{" + many + "\"7\": 1}").find("has '7' already"), std::string::npos);
  EXPECT_EQ(refusal("{" + many + "\"x\": 1}"), "");
}

TEST_F(Jsonl, IsReadInAnyOrder) {
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += concat("{\"i\": ", i, ", \"text\": \"", std::string(static_cast<std::size_t>(i % 300), 'x'), "\"}\r\n");
  const DatasetPtr data = open(text);
  ASSERT_EQ(data->size(), 20000);
  std::mt19937_64 engine(1);
  std::vector<std::int64_t> order;
  for (int i = 0; i < 2000; ++i) order.push_back(static_cast<std::int64_t>(engine() % 20000));
  const std::vector<Example> found = data->examples(order);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(found[i].integer("i"), order[i]);
  EXPECT_NE(error_of([&] { data->example(20000); }), "");
  const std::string print = data->fingerprint();
  EXPECT_NE(print, open(text + "{}\n")->fingerprint());
  EXPECT_EQ(print, open(text)->fingerprint());
  std::filesystem::resize_file(path(), 1000);
  EXPECT_NE(error_of([&] { data->example(15000); }).find("cut short"), std::string::npos);
}

// Another reader's opinion of a value.
bool same_list(const Json& json, const Value& value) {
  std::vector<const Json*> items = {&json};
  Dims shape;
  while (items.front()->is_array()) {
    shape.push_back(std::ssize(items.front()->items()));
    std::vector<const Json*> inner;
    for (const Json* item : items)
      for (const Json& each : item->items()) inner.push_back(&each);
    items = inner;
    if (items.empty()) break;
  }
  if (const auto* integers = std::get_if<Integers>(&value)) {
    if (!(integers->shape == shape) || integers->values.size() != items.size()) return false;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!items[i]->is_integer() || items[i]->integer() != integers->values[i]) return false;
    return true;
  }
  const auto* numbers = std::get_if<Numbers>(&value);
  if (numbers == nullptr || !(numbers->shape == shape) || numbers->values.size() != items.size()) return false;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (static_cast<float>(items[i]->number()) != numbers->values[i]) return false;
  return true;
}
bool same_value(const Json& json, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return json.is_string() && json.string() == *text;
  if (const auto* nested = std::get_if<Nested>(&value)) return Json::parse(nested->json).dump() == json.dump();
  if (json.is_array()) return same_list(json, value);
  if (const auto* whole = std::get_if<std::int64_t>(&value))
    return json.is_boolean() ? json.boolean() == (*whole == 1) : json.is_integer() && json.integer() == *whole;
  const auto* number = std::get_if<double>(&value);
  return number != nullptr && json.is_number() && json.number() == *number;
}

std::string random_json(std::mt19937_64& engine, int depth) {
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  constexpr const char* kScalars[] = {"0",
                                      "-1",
                                      "12345678901234567890",
                                      "1.5",
                                      "2e-3",
                                      "true",
                                      "false",
                                      "null",
                                      "\"\"",
                                      "\"a b\"",
                                      "\"\\u00e4\\n\"",
                                      "\"\\ud83d\\ude00\"",
                                      "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 and more than eight\"",
                                      "-0.0",
                                      "7",
                                      "8"};
  const std::size_t kind = depth > 3 ? below(8) : below(11);
  std::string text;
  if (depth == 0 || kind == 8) {
    text = "{";
    const std::size_t count = below(5);
    for (std::size_t i = 0; i < count; ++i)
      text += concat(i == 0 ? "" : ", ", "\"k", i, "\":", below(2) ? " " : "", random_json(engine, depth + 1));
    return text + "}";
  }
  if (kind > 8) {
    text = "[";
    const std::size_t count = below(5);
    const bool numbers = below(2) == 0;
    for (std::size_t i = 0; i < count; ++i)
      text += concat(i == 0 ? "" : ",", numbers ? std::to_string(below(100)) : random_json(engine, depth + 1));
    return text + "]";
  }
  return kScalars[below(std::size(kScalars))];
}

TEST(JsonLine, TakesWhatAnotherReaderTakesWithTheSameValues) {
  std::mt19937_64 engine(17);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  JsonLineReader reader;
  int taken = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = random_json(engine, 0);
    constexpr std::string_view kBytes = "{}[]\",:0123456789.-+eE\\utfn \t\x01\xc3\xa4\xff";
    for (std::size_t k = below(4); k > 0; --k) {
      const std::size_t at = below(text.size());
      if (below(3) == 0) text.erase(at, 1);
      else if (below(2)) text[at] = kBytes[below(kBytes.size())];
      else text.insert(at, 1, kBytes[below(kBytes.size())]);
      if (text.empty()) text = " ";
    }
    Example example;
    std::string fault;
    try {
      example = reader.read(text);
    } catch (const JsonFault& bad) {
      EXPECT_LE(bad.at, text.size());
      fault = bad.what;
    }
    Json json;
    const bool valid = error_of([&] { json = Json::parse(text); }).empty() && json.is_object();
    if (fault.find("another name") != std::string::npos) continue;
    ASSERT_EQ(valid, fault.empty()) << text << "\n" << fault;
    (valid ? taken : refused) += 1;
    if (!valid) continue;
    for (const auto& [name, value] : json.members()) {
      const Value* found = example.find(name);
      if (value.is_null()) continue;
      ASSERT_NE(found, nullptr) << text;
      ASSERT_TRUE(same_value(value, *found)) << name << " of " << text;
    }
  }
  EXPECT_GT(taken, 4000);
  EXPECT_GT(refused, 4000);
}

// The object of the line is one of the 64.
TEST_F(Jsonl, TakesSixtyFourListsAndObjectsInEachOther) {
  for (const unsigned kinds : {0b0u, 0b1u, 0b01u, 0b10u, 0b011u, 0b110u}) {
    const auto nested = [&](int depth) {
      std::string open, close;
      for (int i = 0; i < depth; ++i) {
        const bool is_object = kinds == 1 || (kinds >> (i % 3) & 1) != 0;
        open += is_object ? "{\"b\":" : "[";
        close.insert(0, is_object ? "}" : "]");
      }
      return concat(open, "\"x\"", close);
    };
    const std::string most = nested(63);
    EXPECT_EQ(line("{\"a\": " + most + "}"), Example().set("a", Nested{most})) << kinds;
    const std::string message = refusal("{\"a\": " + nested(64) + "}");
    EXPECT_NE(message.find("expected at most 64 lists and objects in each other"), std::string::npos) << message;
  }
  // Beside each other they are as many as there are.
  std::string beside;
  for (int i = 0; i < 100; ++i) beside += concat(i == 0 ? "" : ",", i % 2 == 0 ? "{\"c\":{}}" : "[[\"x\"]]");
  EXPECT_EQ(line("{\"a\": [" + beside + "]}"), Example().set("a", Nested{"[" + beside + "]"}));
}

}  // namespace
}  // namespace keel
