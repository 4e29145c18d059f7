#pragma once
// A softmax over a row that comes block by block: its largest score and its sum so far, both corrected by each block
// (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023, algorithm 1).

#include "keel/runtime/math.h"

namespace keel {

struct RunningSoftmax {
  float largest = -INFINITY;  // score
  float total = 0;            // sum of e^(score - largest)

  struct Larger {  // NaN is passed over here; it comes out of the exponentials
    KEEL_HD float operator()(float a, float b) const { return a < b ? b : a; }
  };
  // What a block counts, and what everything before it still does.
  struct Block {
    float shift, rescale;
    KEEL_HD float weight(float score) const { return math::exp_flushed(score - shift); }
  };
  // A block begins: its largest score is known, -inf where it has none.
  KEEL_HD Block begin(float block_largest) {
    const float before = largest;
    largest = Larger{}(before, block_largest);
    const float shift = largest == -INFINITY ? 0 : largest;  // nothing was seen yet
    return {shift, math::exp_flushed(before - shift)};
  }
  // It ends: its weights were added up.
  KEEL_HD void end(const Block& block, float block_total) { total = math::fma(total, block.rescale, block_total); }

  // -inf where nothing was seen.
  KEEL_HD float log_sum_exp() const { return largest + math::log(total); }
};

}  // namespace keel
