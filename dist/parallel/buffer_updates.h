#pragma once
// The buffers of an engine's model: their memory, and what a step makes of all ranks' observations.

#include <memory>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/nn/buffer.h"
#include "keel/nn/tensor_parts.h"

namespace keel {

// Buffers are whole on every rank in every stage, fp32 in every precision, and in no flat memory: no norm, clip or
// optimizer meets them. Every rank calls the same functions.
class BufferUpdates {
 public:
  // Gives the buffers their memory. `ranks` are those whose observations join, and must outlive this.
  BufferUpdates(Module& model, const Context& context, Communicator& ranks);

  // Whether any buffer changes while training.
  bool changes() const { return moving_.numel() > 0; }
  // A line for each buffer, in which ranks must not differ; by `model`, without memory.
  static std::string describe(Module& model);

  // From here on nothing is observed until forget(): a further evaluation of a closure.
  void close() const;
  // Drops what was observed.
  void forget() const;
  // Takes the observations of all ranks into the buffers, where `state` says that the step is taken: one all-gather, or
  // nothing where no buffer changes. Waits for no device. The observations stay until forget().
  void apply(const Tensor& state);

  // Views by name; the first rank has the numbers, and share() brings them to the others.
  TensorParts parts() const;
  void share();

  // Milliseconds in which this thread has waited for the other ranks.
  double waited_ms() const { return waited_ms_; }

 private:
  std::vector<std::shared_ptr<Buffer::State>> buffers_;
  Communicator& ranks_;
  // f32 (numbers + buffers): sums of all ranks, then what each is a mean over, of the buffers that change.
  Tensor moving_;
  Tensor gathered_;  // f32 (ranks, numbers + buffers)
  Tensor one_;       // f32 (1)
  double waited_ms_ = 0;
};

}  // namespace keel
