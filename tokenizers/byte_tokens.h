#pragma once
// Tokens that stand for single bytes: <0x00> to <0xFF>, which models fall back to.

#include <array>
#include <cstdint>

#include "keel/tokenizers/vocabulary.h"

namespace keel {

// Vocabulary::kNone where there is none.
std::array<std::uint32_t, 256> byte_tokens(const Vocabulary& vocabulary);

}  // namespace keel
