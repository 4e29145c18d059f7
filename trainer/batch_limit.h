#pragma once
// How many batches of a set are taken, of those that there are.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

struct ValidationSet;

struct BatchLimit {
  std::int64_t batches = 0;  // the first of them; 0: all
  double percent = 0;        // likewise, rounded up; 0: all

  constexpr BatchLimit() = default;
  constexpr BatchLimit(std::int64_t batches) : batches(batches) {}
  // "10", "25%". An Error for anything else.
  static BatchLimit parse(std::string_view text);
  std::string text() const;
  bool is_none() const { return batches == 0 && percent == 0; }
  std::int64_t of(std::int64_t all) const;
  bool operator==(const BatchLimit&) const = default;
};

// Of validation sets: one for all, and others for those that are named.
struct BatchLimits {
  BatchLimit others;
  std::map<std::string, BatchLimit, std::less<>> of_set = {};

  BatchLimits() = default;
  BatchLimits(BatchLimit all) : others(all) {}
  BatchLimits(std::int64_t all) : others(all) {}
  // "10", "25%", or with names "dev=5". An Error for anything else, and for one that is there twice.
  static BatchLimits parse(const std::vector<std::string>& texts);
  std::vector<std::string> texts() const;
  const BatchLimit& of(std::string_view set) const;
  // An Error where a set is not among these; `key` asked for it.
  void check_sets(const std::vector<ValidationSet>& sets, std::string_view key) const;
  bool operator==(const BatchLimits&) const = default;
};

}  // namespace keel
