#pragma once
// Masked language: which tokens of a row are to be guessed, and what stands there instead.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "keel/data/collator.h"
#include "keel/runtime/random.h"
#include "keel/tasks/special_tokens.h"

namespace keel {

enum class Masking : unsigned char {
  tokens,  // each token by itself
  words,   // the first token of a word draws for all of it
  // Words in a drawn order, until there are min(512, max(1, round(p n))) tokens of n of the row, special ones among
  // them; a word that would be too many is passed over. The whole word collator of BERT's authors.
  budget,
};
Masking parse_masking(std::string_view name);  // an Error lists them

struct MaskingOptions {
  Masking masking = Masking::tokens;
  double probability = 0.15;  // of a token, or of a word; in [0, 1]
  // Of the chosen tokens: the share that the mask token replaces, and the share that any token replaces, drawn
  // uniformly from the whole vocabulary (special tokens among it). The others stay.
  double masked = 0.8, random = 0.1;
  std::int32_t mask_token = 0, padding_token = 0;
  std::int64_t vocabulary = 1;
  TextTemplate around = {};           // each row
  std::vector<bool> is_special = {};  // by number: these are never chosen
  std::int64_t length = 0;            // that rows are filled up to; 0: the longest of a batch
};

struct MaskedRow {
  std::vector<std::int32_t> inputs, labels;  // labels of tokens that are not chosen: -100
};
// A pure function of all that it is given. `begins`: 1 where a token begins a word; empty: each does. Draws of position
// i are words_at(i, key, draw) (keel/tasks/position_draws.h).
MaskedRow masked_row(std::span<const std::int64_t> tokens, std::span<const std::int64_t> begins,
                     const MaskingOptions& options, PhiloxKey key, std::uint64_t draw);

// Rows with the field input_ids and, but for Masking::tokens, `words`. Fields input_ids and labels, i32 (rows, time),
// and lengths, i64 (rows). The weight `tokens` counts the labels. Masks are drawn by the data's seed and the sample, so
// anew in each epoch; with `by_example` by the example, so that an evaluation sees the same ones every time.
Collator masked_tokens(MaskingOptions options, bool by_example);
inline constexpr std::string_view kWords = "words";

}  // namespace keel
