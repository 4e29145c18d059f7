#pragma once
// Outer steps of which little travels: SparseLoCo.

#include "keel/dist/strategies/communication_strategy.h"

namespace keel {

// Sarfi, Therien, Lidin and Belilovsky 2025, "Communication efficient LLM pre-training with SparseLoCo". After every
// `every` steps a group adds how far its weights have come to an error of its own, e = decay e + (w0 - w), with w0 the
// weights after the last outer step. Of every `chunk` neighbouring numbers of e the `keep` largest leave it as far as
// they are sent, and are sent. Then all groups go on from w0 -= rate (mean over groups of what was sent). There is no
// outer momentum: the errors are in its place.
//
// Of two bits a number's sign is one and the other says whether it is one of the larger ones of its chunk
// (Codec::Kind::top_k_2bit); with 32 it is sent as it is. If all are kept, of 32 bits, the steps are those of
// make_outer_steps() without momentum, to the bit.
struct SparseOuterStepOptions {
  std::int64_t every = 30;
  double rate = 1;
  double decay = 0.95;
  std::int64_t chunk = 4096, keep = 64;
  int bits = 2;
};
// A step that a group skips counts in its window.
std::unique_ptr<CommunicationStrategy> make_sparse_outer_steps(const SparseOuterStepOptions& options);

}  // namespace keel
