#pragma once
// The catalog's entries of Llama, Mistral and Qwen: keys, config.json, what a size costs.

#include <vector>

#include "keel/models/catalog.h"

namespace keel {

std::vector<ModelEntry> decoder_entries();

}  // namespace keel
