#pragma once
// A range of bytes of a text.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

// Half open, in bytes. Texts that are encoded at once are shorter than 4 GiB.
struct TextSpan {
  std::uint32_t begin = 0, end = 0;
  std::uint32_t size() const { return end - begin; }
  bool operator==(const TextSpan&) const = default;
};

}  // namespace keel
