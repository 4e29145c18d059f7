// says: Layers that come much later are gathered already
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
  std::vector<Whole> all;
  for (int l = 0; l <= last; ++l) all.push_back(gather(group, layers, l));
  for (int l = 0; l <= last; ++l) {
    all[static_cast<std::size_t>(l)].work.wait();
    layers.forward(l, all[static_cast<std::size_t>(l)].weights.row());
  }
  for (int l = last; l >= 0; --l) {
    std::vector<float> gradients(static_cast<std::size_t>(layers.weights(l)));
    layers.backward(l, all[static_cast<std::size_t>(l)].weights.row(), learn::row(gradients));
    group.reduce_scatter(learn::row(gradients), layers.gradient(l)).wait();
  }
}
