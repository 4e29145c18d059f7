#include "keel/runtime/json_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;

TEST(Json, ATextThatItWroteReadsBackAsItself) {
  const std::string texts[] = {
      "null",
      "true",
      "-9223372036854775808",
      "9223372036854775807",
      "0.1",
      "1e-300",
      "\"\"",
      R"("\"\\\n\u0001é🚢")",
      "[]",
      "{}",
      R"([1,[2.5,[null,"x"]],{"b":{"a":[]}}])",
      R"({"z":1,"a":{"z":false,"a":[1,2]},"m":"end"})",
  };
  for (const std::string& text : texts) EXPECT_EQ(Json::parse(text).dump(), text);
}

TEST(Json, MembersKeepTheOrderInWhichTheyWereGiven) {
  Json json = {{"z", 1}, {"a", Json::array({"x", 2.5, nullptr})}};
  json["m"] = std::vector<int>{3, 4};
  json["a"].push_back(true);
  json["inner"]["deep"] = {{"k", "v"}};
  json["z"] = 9;
  EXPECT_EQ(json.dump(), R"({"z":9,"a":["x",2.5,null,true],"m":[3,4],"inner":{"deep":{"k":"v"}}})");
  EXPECT_EQ(Json({{"a", Json::array({1})}}).dump(1), "{\n \"a\": [\n  1\n ]\n}");
}

TEST(Json, NumbersComeBackToTheBit) {
  for (const double value : {0.1, 1.0 / 3, 1e308, 5e-324, -2.0, double{0.1f}}) {
    const Json read = Json::parse(Json(value).dump());
    EXPECT_FALSE(read.is_integer());
    EXPECT_EQ(read.number(), value);
  }
  EXPECT_EQ(Json::parse("7").number(), 7.0);
  EXPECT_FALSE(Json::parse("18446744073709551615").is_integer());
  EXPECT_EQ(Json::parse("18446744073709551615").number(), std::ldexp(1.0, 64));
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_NE(error_of([] { Json{std::numeric_limits<std::uint64_t>::max()}; }), "");
}

TEST(Json, AValueOfAnotherKindIsAnErrorThatShowsIt) {
  const Json json = Json::parse(R"({"number":1.5,"text":"x","list":[1]})");
  EXPECT_EQ(error_of([&] { json.at("number").integer(); }), "1.5 must be a whole number");
  EXPECT_EQ(error_of([&] { json.at("text").number(); }), "\"x\" must be a number");
  EXPECT_EQ(error_of([&] { json.at("text").boolean(); }), "\"x\" must be true or false");
  EXPECT_EQ(error_of([&] { json.at("list").string(); }), "[1] must be a text");
  EXPECT_EQ(error_of([&] { json.at("list").members(); }), "[1] must be an object");
  EXPECT_EQ(error_of([&] { json.items(); }).find(R"({"number":1.5,)"), 0u);
  EXPECT_EQ(error_of([&] { json.at("tezt"); }), "'tezt' is missing");
  EXPECT_EQ(error_of([] { Json(1)["a"]; }), "1 must be an object");
  EXPECT_EQ(json.at("list").find("a"), nullptr);
}

TEST(Json, TextsThatAreNoneAreRefusedWithTheirPlace) {
  EXPECT_NE(error_of([] { Json::parse("{\"a\":1,\n\"b\":}"); }).find("line 2, column 5"), std::string::npos);
  for (const std::string& text : {std::string(), std::string("[1,]"), std::string("1 2"), std::string("\"\xff\""),
                                  std::string("nan"), std::string(100000, '['), std::string(100000, '{')}) {
    EXPECT_THROW(Json::parse(text), JsonError) << text.substr(0, 20);
    EXPECT_TRUE(Json::parse_or_null(text).is_null());
  }
}

TEST(Json, NestsToItsLimitAndNoFurther) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Json::parse(nested(Json::kMaxDepth)).dump(), nested(Json::kMaxDepth));
  EXPECT_EQ(error_of([&] { Json::parse(nested(Json::kMaxDepth + 1)); }),
            "more than 64 arrays and objects lie inside each other");
}

TEST(Json, TextsThatAreNotUtf8AreRefusedOrReplaced) {
  const Json json = {{"a", "x\xffy"}};
  EXPECT_THROW(json.dump(), JsonError);
  EXPECT_EQ(json.dump(-1, BadUtf8::replace), "{\"a\":\"x\xef\xbf\xbdy\"}");
}

TEST(Json, OfMembersWithOneNameTheLastStays) {
  EXPECT_EQ(Json::parse(R"({"a":1,"b":2,"a":3})").dump(), R"({"a":3,"b":2})");
}

TEST(Json, OfAFileNamesTheFileWhereItIsNone) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.json";
  write_text_file(path, "{\"a\": [1]}");
  EXPECT_EQ(read_json_file(path).dump(), "{\"a\":[1]}");
  write_text_file(path, "{\"a\": ");
  const std::string message = error_of([&] { read_json_file(path); });
  EXPECT_TRUE(message.starts_with(concat("'", path, "' is no JSON: "))) << message;
  EXPECT_NE(message.find("line 1"), std::string::npos) << message;
  EXPECT_THROW(parse_json_file("[", "b.json"), JsonError);
  try {
    read_json_file(folder / "none");
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.kind(), ErrorKind::io); }
}

}  // namespace
}  // namespace keel
