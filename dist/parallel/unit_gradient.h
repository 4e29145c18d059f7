#pragma once
// The gradient of one unit on one rank, from backward passes to the optimizer.

#include <memory>

#include "keel/autograd/row_gradient.h"
#include "keel/dist/parallel/page.h"
#include "keel/dist/parallel/reducer.h"
#include "keel/kernels/step_state.h"

namespace keel {

class UnitGradient {
 public:
  virtual ~UnitGradient() = default;

  // begin_reduce() sends the whole gradient. finish_reduce() waits, and adds the sum over ranks to those of earlier
  // passes of this step. Between the two, continue_reduce() begins the next collective, if there is one. `scale` is the
  // factor by which gradients are larger than the true ones.
  virtual void begin_reduce(double scale) = 0;
  virtual void continue_reduce() = 0;
  virtual void finish_reduce() = 0;
  // After the last pass: gather_sums() begins to gather the sums where this rank owns more than its shard of them, and
  // wait_sums() blocks until they are in own(); elsewhere both do nothing.
  virtual void gather_sums() {}
  virtual void wait_sums() {}
  // Where the whole gradient lies in a file or in the processor's memory: it goes there until the next pass, or the
  // update.
  virtual void store() {}
  // Before the update: what somebody has made of it since then goes there, too.
  virtual void store_changes() {}
  // The page of own(), where that lies elsewhere.
  virtual Page* page() { return nullptr; }
  // The state of a step in which squares and first bad element of this rank's shard, counted in the unit, were noted
  // before it went there; undefined: they were not.
  virtual Tensor noted() const { return {}; }
  // Forgets what was added since the last step.
  virtual void zero() = 0;

  // Of the owned elements, dense, on the device; undefined where it is kept as rows.
  const Tensor& own() const { return own_; }
  // The owned rows where it is kept as rows, once it was reduced; they are numbered in the whole table.
  const RowGradient& own_rows() const { return own_rows_; }
  // Null where it is kept as rows.
  virtual Reducer* reducer() { return nullptr; }

 protected:
  Tensor own_;
  RowGradient own_rows_;
};

// Of a trainable unit, which must outlive it: one tensor, or rows. Gives the unit's buffer its gradient.
std::unique_ptr<UnitGradient> make_dense_gradient(const UnitSite& unit);
std::unique_ptr<UnitGradient> make_rows_gradient(const UnitSite& unit);

}  // namespace keel
