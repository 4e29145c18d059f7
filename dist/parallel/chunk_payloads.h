#pragma once
// Payloads that groups send each other of a unit's shards, chunk by chunk.

#include "keel/dist/parallel/communication_strategy.h"
#include "keel/kernels/codec.h"

namespace keel {

// Neighbouring numbers of a shard, `length` to a chunk; the last chunk of each shard is filled up with zeros. What is
// done to chunks by themselves gives the same bits in all sharding stages.
struct ShardChunks {
  std::int64_t length = 1;

  std::int64_t count(const StrategyNumbers& unit) const;
  // f32 (chunks, length) of a dense tensor of f32, which has so many shards.
  Tensor split(const Tensor& numbers, int shards) const;
  // The reverse: f32 (count), `count` numbers in all.
  Tensor join(const Tensor& chunks, std::int64_t count, int shards) const;
};

// A group's chunks on their way to the others, as a codec makes them.
class ChunkPayloads {
 public:
  // f32 (chunks, length). Leaves there what is not sent.
  ChunkPayloads(const Tensor& chunks, const Codec& codec);
  // Sends them to the others, again where others were lost meanwhile.
  void send(Communicator& groups);
  // Until those of the others have come.
  void wait() const { gathering_.wait(); }
  // What this group has sent, as the others decode it: f32 (chunks, length).
  Tensor sent() const;
  // The mean of what all groups have sent, summed in fp32 in their order: the same bits on all.
  Tensor mean() const;
  // Bytes that a group of so many sends.
  static std::int64_t bytes_sent(const ShardChunks& chunks, const Codec& codec, const StrategyNumbers& unit,
                                 int groups);

 private:
  Tensor zeros_of_chunks() const;

  Codec codec_;
  std::int64_t groups_ = 0, length_;
  Tensor own_, all_;  // u8 (chunks, bytes), u8 (groups, chunks, bytes)
  Work gathering_;
};

}  // namespace keel
