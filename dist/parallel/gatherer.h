#pragma once
// How the whole parameters of a unit come from what each rank has.

#include <memory>

#include "keel/dist/parallel/engine_site.h"
#include "keel/dist/parallel/unit_split.h"

namespace keel {

class Gatherer {
 public:
  virtual ~Gatherer() = default;
  // Begins to gather `whole` from each rank's `own` elements, its shard or all of them. Both are dense and stay as they
  // are until finish().
  virtual Work begin(const Tensor& own, const Tensor& whole) = 0;
  // The collective of begin() has ended: `whole` becomes valid.
  virtual void finish() {}
  // What is left of earlier gathers is no longer true.
  virtual void weights_change() {}
};

// The unit must outlive it.
std::unique_ptr<Gatherer> make_gatherer(const UnitSite& unit);

}  // namespace keel
