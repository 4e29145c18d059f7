#pragma once
// What is in a data set: its fields, their kinds, how long they are.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

struct FieldSummary {
  std::string name;
  std::string kind;           // "a number", "a text", "whole numbers (3, 2)"; several kinds with " or " between them
  std::int64_t examples = 0;  // that have it
  // Of numbers, alone or in sequences: the least and the largest. An infinite range has none.
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  // Of texts, in bytes, and sequences, in elements: how many examples have each length.
  std::map<std::int64_t, std::int64_t> lengths = {};

  bool has_range() const { return least <= most; }
  bool operator==(const FieldSummary&) const = default;
};

// Fields in the order in which they appear. Reads every example once, by several threads; `progress` is told how many
// are read.
std::vector<FieldSummary> summary_of(const Dataset& data,
                                     const std::function<void(std::uint64_t done, std::uint64_t all)>& progress = {});

struct LengthSummary {
  std::int64_t examples = 0, least = 0, median = 0, most = 0, sum = 0;  // the median is one of the lengths
};
LengthSummary summary_of(const std::map<std::int64_t, std::int64_t>& lengths);

// How many of the lengths lie in [from, to].
struct LengthBin {
  std::int64_t from, to, examples;
};
// All of them in at most `most_bins` bins of one width, 1, 2 or 5 times a power of ten, which begin at its multiples.
std::vector<LengthBin> bins_of(const std::map<std::int64_t, std::int64_t>& lengths, int most_bins);

}  // namespace keel
