#pragma once
// The gradient of a unit that lies in a file, or in the processor's memory, between backward passes and until the
// update.

#include <memory>

#include "keel/dist/parallel/engine_site.h"
#include "keel/dist/parallel/page.h"
#include "keel/dist/parallel/unit_split.h"
#include "keel/kernels/step_state.h"

namespace keel {

// Of the whole gradient, of the sums over ranks of this rank's shard, or of both, as the split says.
class GradientPages {
 public:
  // All that is named must outlive it. `sums`: where the sums of the shard lie, unless they are a part of the whole.
  GradientPages(FlatBuffer& buffer, const UnitSplit& split, const UnitSite& site, const Tensor& sums);

  // A pass has come past the unit, and its gradient is not reduced now.
  void store_whole();
  // Before the update, of a gradient that somebody has brought here since.
  void store_changes() {
    if (!sums_page_) store_whole();
  }
  // Around a reduction: `adds`: to sums of earlier passes of the step.
  void begin_sum(bool adds);
  void wait_for_sum();
  void end_sum();
  // The step is over.
  void forget();

  // What the update reads.
  Page* own() const { return sums_page_ ? sums_page_.get() : whole_page_.get(); }
  // A step's state in which squares of this rank's shard were noted; undefined: there are none.
  Tensor noted() const { return has_noted_ ? state_ : Tensor(); }

 private:
  bool bring_whole();
  void note(const Tensor& shard);

  FlatBuffer& buffer_;
  const UnitSplit& split_;
  Pager& pager_;
  Tensor sums_;
  std::unique_ptr<Page> whole_page_, sums_page_;
  bool holds_passes_ = false;  // the whole gradient has those of earlier passes
  Tensor state_, blank_;       // of a step, to note squares in, and without any
  bool has_noted_ = false;
};

}  // namespace keel
