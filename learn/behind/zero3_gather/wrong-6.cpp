// says: reduce_scatter makes the shard of their sum
#include <optional>
#include <vector>

#include "learn/given/layers.h"

struct Whole {
  learn::Buffer weights;
  learn::Work work;
};

Whole gather(learn::Group& group, learn::Layers& layers, int l) {
  learn::Buffer weights(layers.weights(l));
  learn::Work work = group.all_gather(layers.shard(l), weights.row());
  return {std::move(weights), work};
}

void step(learn::Group& group, learn::Layers& layers) {
  const int last = layers.count() - 1;
  std::optional<Whole> now = gather(group, layers, 0), next;
  for (int l = 0; l <= last; ++l) {
    if (l < last) next = gather(group, layers, l + 1);
    now->work.wait();
    layers.forward(l, now->weights.row());
    if (l < last) now = std::move(next);
  }
  for (int l = last; l >= 0; --l) {
    if (l > 0) next = gather(group, layers, l - 1);
    now->work.wait();
    std::vector<float> gradients(static_cast<std::size_t>(layers.weights(l)));
    layers.backward(l, now->weights.row(), learn::row(gradients));
    if (l > 0) now = std::move(next);
  }
}
