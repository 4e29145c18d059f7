#pragma once
// A transport whose rank's counters in shared memory a test sees whenever they change.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "keel/dist/comm/node_memory.h"
#include "tests/dist/comm/forwarding_transport.h"

namespace keel::testing {

// Between processes, as it says unless `one_address_space`, so that large tensors are shown piece by piece. `look` is
// called whenever the rank has shown something; `for_others`: that they may wait for.
class WatchedTransport : public ForwardingTransport {
 public:
  using Look = std::function<void(const SharedAreas&, bool for_others)>;
  WatchedTransport(std::unique_ptr<Transport> inner, SharedAreas& areas, Look look = {}, bool one_address_space = false)
      : ForwardingTransport(std::move(inner)),
        areas_(areas),
        look_(std::move(look)),
        one_address_space_(one_address_space) {}
  std::optional<SharedAreas> share(std::size_t bytes) override {
    std::optional<SharedAreas> areas = inner().share(bytes);
    areas->one_address_space = one_address_space_;
    areas_ = *areas;
    return areas;
  }
  void announce(bool for_others) override {
    inner().announce(for_others);
    if (look_) look_(areas_, for_others);
  }

 private:
  SharedAreas& areas_;
  Look look_;
  bool one_address_space_;
};

inline const NodeArea& area_of(const SharedAreas& areas, std::size_t rank) {
  return *reinterpret_cast<const NodeArea*>(areas.areas[rank]);
}

// Counters only grow, so that what is read first is not ahead of what is read afterwards.
inline void expect_no_rank_ahead(const SharedAreas& areas) {
  for (std::size_t r = 0; r < areas.areas.size(); ++r)
    for (std::size_t other = 0; other < areas.areas.size(); ++other) {
      const NodeArea &mine = area_of(areas, r), &theirs = area_of(areas, other);
      const std::uint64_t taken = mine.taken, added = mine.added, shown = mine.shown, done = mine.done;
      EXPECT_LE(added, theirs.shown) << "what nobody has shown is added";
      EXPECT_LE(taken, theirs.shown) << "what nobody has shown is taken";
      EXPECT_LE(shown, theirs.taken + 2) << "a buffer is written that somebody may read";
      EXPECT_LE(done, theirs.asked);
    }
}

}  // namespace keel::testing
