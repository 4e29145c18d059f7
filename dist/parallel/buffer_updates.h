#pragma once
// The buffers of an engine's model: their memory, and what a step makes of all ranks' observations.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/engine_site.h"
#include "keel/nn/buffer.h"
#include "keel/nn/tensor_parts.h"

namespace keel {

// Buffers are whole on every rank in every stage, fp32 in every precision, and in no flat memory: no norm, clip or
// optimizer meets them. Every rank calls the same functions.
class BufferUpdates {
 public:
  // Gives the buffers their memory. `ranks` are those whose observations join, and must outlive this.
  BufferUpdates(Module& model, Communicator& ranks, const EngineSite& site);

  // Whether any buffer changes while training.
  bool changes() const { return !changing_.empty(); }
  // A line for each buffer, in which ranks must not differ; by `model`, without memory.
  static std::string describe(Module& model);

  // From here on nothing is observed until forget(): a further evaluation of a closure.
  void close() const;
  // Drops what was observed.
  void forget() const;
  // Notes what a virtual rank of this one has observed since the last of them, or since forget().
  void collect(int number);
  // Takes what was collected on all ranks into the buffers, where `state` says that the step is taken: one all-gather,
  // or nothing where no buffer changes. Waits for no device.
  void apply(const Tensor& state);

  // Views by name; the first rank has the numbers, and share() brings them to the others.
  TensorParts parts() const;
  void share();

 private:
  std::vector<std::shared_ptr<Buffer::State>> buffers_;
  // Those that change, each with the place of its numbers; behind them is what they are a mean over.
  std::vector<std::pair<Buffer::State*, Span>> changing_;
  Communicator& ranks_;
  EngineTimes& times_;
  int virtual_ranks_;
  // f32 (numbers + buffers): sums of all ranks, of the buffers that change.
  Tensor moving_;
  Tensor gathered_;  // f32 (virtual ranks of all, numbers + buffers)
  Tensor one_;       // f32 (1)
};

}  // namespace keel
