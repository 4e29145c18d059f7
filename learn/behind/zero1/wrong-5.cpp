// says: What a call brings is not there before wait()
#include <vector>

#include "learn/given/adam.h"
#include "learn/given/ranks.h"

learn::AdamState make_state(std::int64_t count, int n, int rank) {
  const auto size = static_cast<std::size_t>(learn::shard(count, n, rank).size());
  return {std::vector<float>(size), std::vector<float>(size)};
}

void step(learn::Group& group, learn::Out weights, learn::In gradients, learn::AdamState& state) {
  const learn::Shard shard = learn::shard(weights.size(), group.size(), group.rank());
  const learn::Out mine = learn::part(weights, shard);
  std::vector<float> mean(static_cast<std::size_t>(shard.size()));
  learn::Work summing = group.reduce_scatter(gradients, learn::row(mean));
  for (float& g : mean) g /= static_cast<float>(group.size());
  learn::adam(mine, learn::row(mean), state);
  group.all_gather(mine, weights).wait();
  summing.wait();
}
