#pragma once
// What a rank is told when another one has failed.

#include <gtest/gtest.h>

#include <string>

namespace keel::testing {

// Whether `text` is the reason as it reaches a rank. It ends with where that rank was, which depends on who is faster:
//   "REASON; rank 2 was in barrier (collective number 3, step 57)", "... before its next collective (...)", or
//   "... joining its group".
inline ::testing::AssertionResult is_heard(const std::string& text, const std::string& reason) {
  const std::string opening = reason + "; rank ";
  const std::size_t was = text.find(" was ", opening.size());
  const bool has_rank = text.starts_with(opening) && was != std::string::npos && was > opening.size() &&
                        text.find_first_not_of("0123456789", opening.size()) == was;
  if (has_rank) {
    const std::string place = text.substr(was + 5);
    if (place == "joining its group") return ::testing::AssertionSuccess();
    const std::size_t number = place.rfind(" (collective number ");
    const bool is_between = place.starts_with("in ") || place.starts_with("before its next collective (");
    if (is_between && number != std::string::npos && place.ends_with(')')) return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "'" << text << "' is not '" << reason << "' and where the rank was";
}

}  // namespace keel::testing
