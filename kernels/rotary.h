#pragma once
// Rotary positions: pairs of a head's elements turned by an angle that grows with the position, and the norm of a head
// in front.

#include <cstdint>

#include "keel/runtime/tensor.h"

namespace keel {

// Which elements of a head are a pair: i and i + rotated / 2 (GPT-NeoX, Llama), or 2 i and 2 i + 1 (GPT-J).
enum class RotaryPairs : unsigned char { halves, interleaved };

// How far each pair is turned at each position. keel/nn/rotary.h makes tables.
struct RotaryTable {
  Tensor cosines, sines;  // f32 (positions, rotated / 2), dense
  RotaryPairs pairs = RotaryPairs::halves;
};

// out = rotate(x), or rotate(norm(x)) with `weight`: pair p of a head at position m becomes
//   (a cos - b sin, b cos + a sin), the cosine and sine being element (m, p) of the table (Su et al. 2021).
// Elements at and past `rotated` stay what they are. A norm is x / sqrt(mean(x^2) + epsilon) * weight over the head
// (Zhang and Sennrich 2019), and nothing is rounded before the rotation.
struct RotaryArgs {
  Tensor x;                // (batch, heads, time, size); copied unless its last dimension is dense
  Tensor out;              // like x, with any strides and a dense last dimension; may be x itself
  RotaryTable table;       // of at most `size` elements
  Tensor positions = {};   // optional i32 or i64 (time) or (1 or batch, time): rows of the table
  std::int64_t first = 0;  // without them: time t stands at first + t
  bool inverse = false;    // turns back, which is the derivative as well; never with a norm
  Tensor weight = {};      // optional, x's dtype (size): norm first
  double epsilon = 0;
  Tensor rstd = {};  // of the norm: f32 (f64 for f64) (batch, heads, time), dense
};

struct RotaryBackwardArgs {
  RotaryArgs forward;       // without a norm, x may be an empty handle
  Tensor grad_out;          // (batch, heads, time, size)
  Tensor grad_x;            // any strides with a dense last dimension; may be grad_out itself
  Tensor grad_weight = {};  // with a norm, optional: dense, f32 or x's dtype (size)
  bool add_weight = false;  // to what it holds
};

namespace kernels {

// Fills args.out, which is then dense as (batch, time, heads, size), and args.rstd where they are undefined, and
// returns them inside args. A position outside the table is an Error.
RotaryArgs rotary(RotaryArgs args);
// Fills an undefined grad_x likewise and returns it inside args.
RotaryBackwardArgs rotary_backward(RotaryBackwardArgs args);

}  // namespace kernels
}  // namespace keel
