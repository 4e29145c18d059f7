#pragma once
// Parts of a data set, such as what is held back for validation.

#include <cstdint>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// Disjoint parts of the examples whose sizes are these fractions, by largest remainder. Which part an example belongs
// to depends on its number, the seed and the sizes alone, and no table of it is kept: a part has a random order. Where
// the fractions add up to less than 1, the rest is in no part. Fractions below 0, or a sum above 1, are an Error.
std::vector<DatasetPtr> split(const DatasetPtr& whole, const std::vector<double>& fractions, std::uint64_t seed);

}  // namespace keel
