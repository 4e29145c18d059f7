#pragma once
// What a forward pass may ask of the other ranks that compute one at the same time.
//
// Every rank of a run computes as many forward passes, in the same order, since ranks gather weights from each other
// inside. So a loop whose length depends on data, such as generation up to an end mark, has to go on on every rank
// until the last one is done: that is what any() is for. A model without ranks never needs this.

#include "keel/runtime/language.h"

namespace keel {

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether it is so on any rank. Every rank calls it.
  virtual bool any(bool mine) = 0;
};

// For loops over Forward::group: whether any rank goes on; a rank alone answers for itself.
inline bool any_goes_on(RankGroup* group, bool mine) { return group == nullptr ? mine : group->any(mine); }

}  // namespace keel
