#pragma once
// A network that is slower than the one there is, to try a run on.

#include <chrono>

#include "keel/runtime/language.h"

namespace keel {

// A rank's connection to the others, through which its messages leave one after the other. Each arrives `delay` after
// its last byte has left, so that it takes delay + bytes / bandwidth at least.
struct Link {
  std::chrono::microseconds delay{0};
  double bandwidth = 0;  // bytes a second; 0: as fast as it goes
  bool is_slow() const { return delay.count() > 0 || bandwidth > 0; }
};

// The links of a rank: those to ranks of its group, `group` neighbours by rank, and those to all others, which are
// another way out of it.
struct Network {
  Link link = {};
  Link outer = {};
  int group = 0;  // 0: all ranks are one
  bool is_slow() const { return link.is_slow() || (group > 0 && outer.is_slow()); }
  bool is_outer(int from, int to) const { return group > 0 && from / group != to / group; }
};

}  // namespace keel
