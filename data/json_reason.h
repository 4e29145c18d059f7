#pragma once
// A JSON library's message without its identifier in brackets.

#include <string>
#include <string_view>

namespace keel {

inline std::string json_reason(std::string_view message) {
  const std::size_t end = message.find("] ");
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

}  // namespace keel
