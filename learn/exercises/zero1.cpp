// zero1: the optimizer's state of N ranks, without N copies
//
// Below is data parallel training. Every rank has all weights, and adds up all gradients. Then it makes the
// same step of Adam as all others, with the same state: two numbers a weight. ZeRO-1 (Rajbhandari and others,
// 2020) shares that out. A rank holds the state of its shard of the weights, and makes the step of its shard
// alone.
//
//   gradients: a rank needs its shard of the sum, and no more      Group::reduce_scatter
//   Adam: a step on the rank's shard of the weights                learn::adam
//   weights: the other shards come from the other ranks            Group::all_gather
//
// The weights are the same to the last bit. Each rank sends as much as before, since an all_reduce is a
// reduce_scatter and an all_gather. The shard of a rank is learn::shard(count, n, rank), and may be empty.
// learn::part() is a part of a row. given/ranks.h has all of it.
//
// Change make_state() and step(). To read afterwards: docs/zero.md, and the table in dist/plan/rank_plan.h.

#include <vector>

#include "learn/given/adam.h"
#include "learn/given/ranks.h"

// The state of a rank of n, before the first step; `count` weights has the model.
learn::AdamState make_state(std::int64_t count, int n, int rank) {
  const auto size = static_cast<std::size_t>(count);
  return {std::vector<float>(size), std::vector<float>(size)};
}

// weights are the same on all ranks, before and after; gradients are the rank's own.
void step(learn::Group& group, learn::Out weights, learn::In gradients, learn::AdamState& state) {
  std::vector<float> mean(gradients.begin(), gradients.end());
  group.all_reduce(learn::row(mean)).wait();
  for (float& g : mean) g /= static_cast<float>(group.size());
  learn::adam(weights, learn::row(mean), state);
}
