#include "keel/dist/strategies/chunk_payloads.h"

#include <algorithm>

#include "keel/dist/comm/elements_sent.h"
#include "keel/kernels/elementwise.h"

namespace keel {

std::int64_t ShardChunks::count(const StrategyNumbers& unit) const {
  return unit.shards * ((unit.count / unit.shards + length - 1) / length);
}

Tensor ShardChunks::split(const Tensor& numbers, int shards) const {
  const std::int64_t part = numbers.numel() / shards, all = count({numbers.numel(), shards});
  const Tensor chunks = zeros(numbers.context(), {shards, all / shards * length}, DType::f32, Purpose::bucket);
  kernels::copy_into(chunks.slice(1, 0, part), numbers.view({shards, part}));
  return chunks.view({all, length});
}

Tensor ShardChunks::join(const Tensor& chunks, std::int64_t count, int shards) const {
  const Tensor by_shard = chunks.view({shards, chunks.numel() / shards});
  return kernels::contiguous(by_shard.slice(1, 0, count / shards)).flatten();
}

ChunkPayloads::ChunkPayloads(const Tensor& chunks, const Codec& codec) : codec_(codec), length_(chunks.dim(1)) {
  const std::int64_t bytes = codec.bytes(length_);
  own_ = empty(chunks.context(), {chunks.dim(0), bytes}, DType::u8, Purpose::bucket);
  kernels::encode({chunks, own_, codec});
}

void ChunkPayloads::send(Communicator& groups) {
  groups_ = groups.size();
  all_ = empty(own_.context(), {groups_, own_.dim(0), own_.dim(1)}, DType::u8, Purpose::bucket);
  gathering_ = groups.all_gather(own_.flatten(), all_.flatten());
}

Tensor ChunkPayloads::zeros_of_chunks() const {
  return zeros(own_.context(), {own_.dim(0), length_}, DType::f32, Purpose::bucket);
}

Tensor ChunkPayloads::sent() const {
  const Tensor decoded = zeros_of_chunks();
  kernels::decode_add({decoded, own_, codec_});
  return decoded;
}

Tensor ChunkPayloads::mean() const {
  const Tensor sum = zeros_of_chunks();
  for (std::int64_t g = 0; g < groups_; ++g)
    kernels::decode_add({sum, all_.slice(0, g, g + 1).view(own_.shape()), codec_});
  kernels::scale(sum, 1.0 / static_cast<double>(groups_));
  return sum;
}

void ChunkStrategy::exchange(std::vector<ChunkPayloads>& payloads) const {
  site_->outer.attempt([&] {
    for (ChunkPayloads& each : payloads) each.send(site_->outer);
    for (const ChunkPayloads& each : payloads) each.wait();
  });
}

StrategyCost ChunkStrategy::cost(std::span<const StrategyNumbers> units, const StrategyPlace& place) const {
  constexpr std::int64_t kWidth = 4;  // bytes of fp32
  const bool on_host = place.weights_on_host && tensors_.by_weights;
  StrategyCost cost{.every = every_, .saved = tensors_.kept, .saved_of_group = tensors_.of_group};
  std::int64_t payloads = 0, taking_out = 0, using_means = 0;
  for (const StrategyNumbers& unit : units) {
    const std::int64_t chunks = chunks_.count(unit), numbers = kWidth * unit.count;
    (on_host ? cost.host_state : cost.state) += tensors_.kept * numbers;
    cost.held += tensors_.held * numbers;
    const std::int64_t working = kWidth * chunks * chunks_.length, moved = tensors_.moved * numbers;
    if (on_host) cost.host_at_once = std::max(cost.host_at_once, moved);
    taking_out = std::max(taking_out, payloads + working + moved);
    using_means = std::max(using_means, working + (on_host ? 0 : moved));
    const std::int64_t payload = chunks * codec_.bytes(chunks_.length);
    payloads += payload;
    cost.sent += elements_sent(place.route, CollectiveKind::all_gather,
                               {.rank = place.group, .size = place.groups, .count = place.groups * payload});
  }
  cost.at_once = cost.held + std::max(taking_out, (place.groups + 1) * payloads + using_means);
  return cost;
}

}  // namespace keel
