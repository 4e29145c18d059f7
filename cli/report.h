#pragma once
// Errors as lines on the standard error, and as exit codes.

#include <string>
#include <string_view>

namespace keel::cli {

inline constexpr int kInternalError = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kNotFinite = 3;

// One "keel: error: ..." for each line of the message; returns the code. `who` ("rank 2: ") comes before each.
int report(std::string_view message, int code, std::string_view who = {});

// The exit code and the message of the exception that is being handled.
struct Failure {
  int code = kInternalError;
  std::string message;
  bool is_from_peer = false;  // another rank began it
};
Failure current_failure();

}  // namespace keel::cli
