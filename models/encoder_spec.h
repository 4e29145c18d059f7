#pragma once
// Entries of the catalog for BERT and its relatives.

#include <vector>

#include "keel/models/catalog.h"

namespace keel {

std::vector<ModelEntry> encoder_entries();

}  // namespace keel
