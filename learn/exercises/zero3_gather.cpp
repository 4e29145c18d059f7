// zero3_gather: train a model of which no rank has all the weights
//
// In ZeRO-3 (Rajbhandari and others, 2020) a rank holds its shard of every layer. Right before a layer
// computes, its shards are gathered from all ranks. Right behind it the whole layer is released. The next
// layer is gathered meanwhile; otherwise every layer would wait for the network. So whole weights take the
// memory of two layers, however many there are.
//
//   forward, layers 0, 1, ...:   begin the gather of layer l + 1, wait for that of l, compute l, release l
//   backward, layers ..., 1, 0:  begin the gather of layer l - 1, wait for that of l, compute l, release l
//
// After each backward() a reduce_scatter makes the rank's shard of the sum of all gradients, in
// layers.gradient(l). The last layer of forward is the first one of backward: it is not released in between,
// and not gathered twice. So a step of L layers has 2 L - 1 gathers.
//
// Whole weights lie in a learn::Buffer. It is released when its life ends, or when another one is moved into
// it. Whole gradients may lie in a std::vector<float>. given/layers.h has the layers, and given/ranks.h the
// group.
//
// Write step(). To read afterwards: docs/zero.md, then dist/parallel/gatherer.h.

#include <optional>
#include <vector>

#include "learn/given/layers.h"

void step(learn::Group& group, learn::Layers& layers) {
  // Your code.
}
