#pragma once
// Roles of keys: what a task's key says, for those who know no task and ask whichever is trained.
//
// Files of other trainers have the length of a sequence, and each task that has one calls it by a key of its own.

#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// Each is of one key of a task, at most.
enum class KeyRole : unsigned char {
  none,
  // What the model predicts, by name: parts with the keys name, type (regression or classification), loss and weight.
  heads,
  sequence_length,      // the longest, in tokens
  data_file,            // that is trained on
  validation_fraction,  // of the data, which is not trained on
  recompute,            // whether activations are computed again during backward, instead of kept
};

// "the length of a sequence".
std::string_view words_of(KeyRole role);

}  // namespace keel
