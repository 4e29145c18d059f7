#pragma once
// Parts of a data set, such as what is held back for validation.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// Disjoint parts of the examples whose sizes are these fractions, by largest remainder. Which part an example belongs
// to depends on its number, the seed and the sizes alone, and no table of it is kept: a part has a random order. Where
// the fractions add up to less than 1, the rest is in no part. Fractions below 0, or a sum above 1, are an Error.
std::vector<DatasetPtr> split(const DatasetPtr& whole, const std::vector<double>& fractions, std::uint64_t seed);

// These examples, in this order. A number outside the data set is an Error. The numbers are kept.
DatasetPtr chosen(DatasetPtr whole, std::vector<std::int64_t> numbers);

struct ColumnParts {
  std::vector<std::vector<std::int64_t>> parts;  // numbers of examples, ascending
  std::vector<std::int64_t> rest;                // of examples that are in no part
};
// Which examples have, in the field `column`, one of the values that a part names. A number has the value of every text
// that reads as it: 1 is "1" and "1.0". Reads every example once. An Error: an example without the field, or with one
// that is neither a number nor a text; a value that no example has, and one that two parts name.
ColumnParts parts_by_column(const Dataset& whole, const std::string& column,
                            const std::vector<std::vector<std::string>>& values);

}  // namespace keel
