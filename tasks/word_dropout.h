#pragma once
// Word dropout (Iyyer et al., 2015, "Deep Unordered Composition Rivals Syntactic Methods for Text Classification"):
// training hides some tokens of each text, so that no class hangs on a single word.

#include <cstdint>
#include <vector>

#include "keel/data/collator.h"
#include "keel/runtime/random.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

struct WordDropout {
  double share = 0;                   // of the tokens, in [0, 1)
  std::int32_t stand_in = 0;          // what stands in the place of a hidden token
  std::vector<bool> is_special = {};  // by number: these are never hidden
};
// The stand-in is the token that masks, or else the one of unknown text. An Error where the tokenizer has neither.
WordDropout word_dropout(const Tokenizer& tokenizer, double share);

// A pure function of all that it is given: position i is hidden where the first of words_at(i, key, draw)
// (keel/tasks/position_draws.h) is less than share * 2^32.
void hide_words(std::vector<std::int64_t>& tokens, const WordDropout& options, PhiloxKey key, std::uint64_t draw);

// `rows`, with words hidden in the field input_ids: by the data's seed and the sample, so anew in each epoch.
Collator hiding_words(WordDropout options, Collator rows);

}  // namespace keel
