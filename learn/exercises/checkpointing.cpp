// checkpointing: memory for one more forward pass
//
// The way back through a chain of n layers needs what went into each. To keep all that takes memory for n
// activations. Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost", cut the
// chain into segments of about sqrt(n) layers. Forward, only what goes into each segment is kept. Backward,
// from the last segment to the first, a segment is computed once more from what was kept, and then gone back
// through. About sqrt(n) activations are kept, and about sqrt(n) are inside of the segment. The price is one
// more forward pass.
//
// Write gradient(). It goes forward and back through the chain, and returns dx, the derivative of the loss
// with respect to x:
//
//   y = chain.forward(i, x, random)        y of layer i, for i = 0 ... chain.size() - 1
//   dy = chain.loss_gradient(y)            dy of the last layer
//   dx = chain.backward(i, x, y, dy)       dx of layer i, which is dy of layer i - 1
//
// Layers have dropout: each forward() draws a random number and moves `random` on. A segment that is computed
// once more must draw the same numbers as the first time, or else its gradients are those of other masks.
// `random` may be copied, like a bookmark. When gradient() returns, it has moved on by n numbers, as after
// one forward pass.
//
// At most 2 s + 6 activations may be alive at a time, where s is sqrt(n) rounded up; gradients count as well.
// At most 2 n forward passes of a layer are made. The gradients are equal to the bit to those without
// checkpointing. learn/given/chain.h has the types. To read afterwards: autograd/checkpoint.cpp, which is
// keel's.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "learn/given/chain.h"

learn::Activation gradient(learn::Chain& chain, learn::Activation x, learn::Random& random) {
  // Your code. First without segments, keeping all: the first laws hold then.
  return {};
}
