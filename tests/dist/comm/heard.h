#pragma once
// What a rank is told when another one has failed.

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace keel::testing {

// A reason as it reaches a rank: with where that rank was by then, which depends on who is faster.
inline ::testing::AssertionResult is_heard(const std::string& text, const std::string& reason) {
  static const std::regex place(
      R"(; rank \d+ was (joining its group|(in [a-z_ ]+( of .+)?|before its next collective) \(collective number \d+(, [^()]*)?\)))");
  if (text.starts_with(reason) && std::regex_match(text.substr(reason.size()), place))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' is not '" << reason << "' and where the rank was";
}

}  // namespace keel::testing
