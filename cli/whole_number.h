#pragma once
// Whole numbers in what launchers and users write.

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace keel::cli {

// All of the text as a number; nothing for another text.
inline std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace keel::cli
