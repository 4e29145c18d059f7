#pragma once
// Payloads that groups send each other of a unit's shards, chunk by chunk.

#include <optional>

#include "keel/dist/strategies/communication_strategy.h"
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

 private:
  Tensor zeros_of_chunks() const;

  Codec codec_;
  std::int64_t groups_ = 0, length_;
  Tensor own_, all_;  // u8 (chunks, bytes), u8 (groups, chunks, bytes)
  Work gathering_;
};

// A strategy by which each group sends the others chunks of its own, and that counts steps.
class ChunkStrategy : public CommunicationStrategy {
 public:
  bool survives() const override { return true; }
  void begin(const StrategySite& site) override { site_.emplace(site); }
  void restart() override { steps_ = 0; }
  std::int64_t steps() const override { return steps_; }
  void resumed(std::int64_t steps) override { steps_ = steps; }
  StrategyCost cost(std::span<const StrategyNumbers> units, const StrategyPlace& place) const override;

 protected:
  // Tensors in fp32, each as large as a unit.
  struct Tensors {
    int kept = 0;             // of each unit, from step to step
    int of_group = 0;         // of these, such as each group has of its own
    bool by_weights = false;  // where these lie, and otherwise where gradients do
    int held = 0;             // of each unit, from an exchange until the step has ended
    int moved = 0;            // of one unit, beside the chunks that are its mean
  };
  // `every`: steps between two exchanges.
  ChunkStrategy(std::int64_t chunk, const Codec& codec, std::int64_t every, const Tensors& tensors)
      : chunks_{chunk}, codec_(codec), every_(every), tensors_(tensors) {}
  // Sends the payloads of all units to the other groups, and waits for theirs.
  void exchange(std::vector<ChunkPayloads>& payloads) const;

  ShardChunks chunks_;
  Codec codec_;
  std::optional<StrategySite> site_;
  std::int64_t steps_ = 0;

 private:
  std::int64_t every_;
  Tensors tensors_;
};

}  // namespace keel
