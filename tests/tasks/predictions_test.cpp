// Predictions of a batch, and the lines that they become.

#include "keel/tasks/predictions.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

TEST(Predictions, BecomeLinesInTheOrderOfExamples) {
  Predictions predictions({4, 5, 6});
  predictions.add(6, {{"class", 2}});
  predictions.add(4, {{"class", 1}, {"score", std::numeric_limits<double>::infinity()}, {"text", "\xff"}});
  EXPECT_EQ(predictions.lines(),
            "{\"example\":4,\"class\":1,\"score\":null,\"text\":\"\xef\xbf\xbd\"}\n{\"example\":5}\n"
            "{\"example\":6,\"class\":2}\n");
}

TEST(Predictions, RefuseWhatNamesNoExampleOfTheBatchOrOneTwice) {
  Predictions predictions({4, 5});
  predictions.add(4, {{"class", 1}});
  EXPECT_EQ(error_of([&] { predictions.add(4, {{"class", 1}}); }), "example 4 was predicted twice");
  EXPECT_EQ(error_of([&] { predictions.add(6, {{"class", 1}}); }), "example 6 is not in the batch that is predicted");
  EXPECT_NE(error_of([&] { predictions.add(5, 3); }).find("an object of JSON, not 3"), std::string::npos);
  EXPECT_NE(error_of([&] { predictions.add(5, {{"example", 3}}); }).find("as `example` already"), std::string::npos);
}

}  // namespace
}  // namespace keel
