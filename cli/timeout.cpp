#include "timeout.h"

#include <charconv>

#include "keel/runtime/error.h"

namespace keel::cli {

std::chrono::milliseconds parse_timeout(const std::string& text, const std::string& name) {
  constexpr double kLeast = 0.001, kMost = 1e6;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  KEEL_CHECK(error == std::errc{} && end == text.data() + text.size() && seconds >= kLeast && seconds <= kMost, name,
             " expects seconds, between ", kLeast, " and ", static_cast<std::int64_t>(kMost), "; got '",
             text.substr(0, 60), "'");
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace keel::cli
