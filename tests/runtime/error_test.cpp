#include "keel/runtime/error.h"

#include <gtest/gtest.h>

#include <string>

namespace keel {
namespace {

template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "nothing was thrown";
}

TEST(Error, IsOneLineWhateverNamesAreInIt) {
  const std::string name = "w\nkeel: error: forged\r\033[2J";
  const std::string shown = "w\\x0akeel: error: forged\\x0d\\x1b[2J";
  EXPECT_EQ(message_of([&] { throw Error(concat("there is no '", name, "'"), ErrorKind::io); }),
            concat("there is no '", shown, "'"));
  EXPECT_EQ(message_of([&] { KEEL_CHECK(false, "no '", name, "'"); }), concat("no '", shown, "'"));
  // What wraps the message of another one shows the same.
  EXPECT_EQ(message_of([&] { throw Error(Error(name).what()); }), shown);
}

TEST(Error, HasLinesWhereTheyAreGivenAsSuch) {
  const Error error(MessageLines{"first\nsecond \033[2J"}, ErrorKind::peer);
  EXPECT_STREQ(error.what(), "first\nsecond \\x1b[2J");
  EXPECT_EQ(error.kind(), ErrorKind::peer);
}

TEST(Error, OfAnotherOneKeepsItsKindAndItsLines) {
  const Error inner(MessageLines{"first\nsecond"}, ErrorKind::numeric);
  const Error error("'a\nb': ", inner, "; of 'c\nd'");
  EXPECT_STREQ(error.what(), "'a\\x0ab': first\nsecond; of 'c\\x0ad'");
  EXPECT_EQ(error.kind(), ErrorKind::numeric);
}

}  // namespace
}  // namespace keel
