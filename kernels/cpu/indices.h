#pragma once
// Index tensors of the CPU kernels: the range check, and the positions at which each index occurs.

#include <cstdint>
#include <string_view>

#include "keel/kernels/cpu/rows.h"
#include "keel/runtime/tensor.h"

namespace keel::cpu {

// Throws an Error that names the first of `count` indices outside [0, extent). `what` begins the
// message, e.g. "embedding: id".
template <class Index>
void check_indices(std::string_view what, const Index* indices, std::int64_t count, std::int64_t extent) {
  const auto outside = [extent](Index index) {
    return static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(extent);
  };
  bool any = false;
  for (std::int64_t i = 0; i < count; ++i) any |= outside(indices[i]);
  if (!any) return;
  const std::int64_t first = std::find_if(indices, indices + count, outside) - indices;
  throw Error(concat(what, ' ', indices[first], " at position ", first, " is outside [0, ", extent, ")"));
}

// Positions sorted by the index they hold, each group ascending: a counting sort. Additions into
// one row can then run in the order of positions while rows run in parallel.
class PositionsByIndex {
 public:
  template <class Index>
  PositionsByIndex(const Context& context, const Index* indices, std::int64_t count, std::int64_t extent)
      : ends_(context, extent + 1), positions_(context, count) {
    std::int64_t* const next = ends_.data();
    std::fill(next, next + extent + 1, 0);
    for (std::int64_t i = 0; i < count; ++i) ++next[indices[i] + 1];
    for (std::int64_t e = 0; e < extent; ++e) next[e + 1] += next[e];
    // next[e] walks from the begin of group e to its end, which is the begin of group e + 1.
    for (std::int64_t i = 0; i < count; ++i) positions_.data()[next[indices[i]]++] = i;
  }

  const std::int64_t* begin(std::int64_t index) const {
    return positions_.data() + (index == 0 ? 0 : ends_.data()[index - 1]);
  }
  const std::int64_t* end(std::int64_t index) const { return positions_.data() + ends_.data()[index]; }

 private:
  Workspace<std::int64_t> ends_;
  Workspace<std::int64_t> positions_;
};

}  // namespace keel::cpu
