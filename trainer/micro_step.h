#pragma once
// Forward and backward of one micro-batch on a device, repeated as a graph once it has been recorded.

#include "keel/data/batch.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/models/gpt.h"
#include "keel/runtime/graph.h"

namespace keel {

// There are two graphs: one for a step's first micro-batch with targets, which writes gradients, and one for the
// others, which add to them. Each is recorded after two ordinary runs, and repeated for every batch of the same shape
// and number of targets; other batches run without a graph. The model must draw no random numbers, since a graph would
// repeat them.
class GraphedMicroStep {
 public:
  // Model and engine, of a rank alone, must outlive it. An Error where the device has no graphs.
  GraphedMicroStep(const Gpt& model, Sharded& engine);
  // Adds the gradients of the batch's loss to those of the step; returns the loss. `last`: of the step.
  HostCopy run(const Batch& batch, bool last);

 private:
  struct Recorded {
    int runs = 0;
    Batch batch;  // where the graph reads
    Tensor loss;  // f32 scalar, where it writes
    Graph graph;
    std::vector<Leaf*> reached;  // that hold a gradient afterwards
  };
  Tensor forward_backward(const Batch& batch, bool last);  // the loss
  void run_recorded(Recorded& recorded, const Batch& batch, bool last);

  const Gpt& model_;
  Sharded& engine_;
  Context context_;
  Stream stream_;
  KeptMemory memory_;
  Recorded first_, later_;
};

}  // namespace keel
