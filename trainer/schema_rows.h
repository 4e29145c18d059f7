#pragma once
// What rows of several tables of keys are made of: limits, and texts that live as long as the rows.

#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "keel/trainer/schema.h"

namespace keel {

inline constexpr Range kAny = {};
inline constexpr Range kFraction = {.low = 0, .high = 1, .high_open = true};

// A text that rows may point to.
inline std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

}  // namespace keel
