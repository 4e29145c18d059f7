#pragma once
// Numbers of others that a checkpoint keeps beside an engine's, such as averages of its weights.

#include <string>

#include "keel/nn/tensor_parts.h"

namespace keel {

class Sharded;

struct SavedBeside {
  std::string section;        // "callback.ema"
  TensorParts parts;          // cut among the ranks as the engine's weights are
  Sharded* engine = nullptr;  // whose numbers they are, if another one's: it changes none while a copy is made
};

}  // namespace keel
