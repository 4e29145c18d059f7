#pragma once
// Forward and backward of one micro-batch on a device, repeated as a graph once it has been recorded.

#include "keel/data/batch.h"
#include "keel/runtime/graph.h"
#include "keel/trainer/step_loss.h"

namespace keel {

// There are two graphs: one for a step's first micro-batch with weight, which writes gradients, and one for the
// others, which add to them. Each is recorded after two ordinary runs, and repeated for every batch of the same shapes
// and weights; other batches run without a graph. The model must draw no random numbers, since a graph would
// repeat them.
class GraphedMicroStep {
 public:
  // The engine, of a rank alone, and what the loss refers to must outlive it. An Error where the device has no graphs.
  GraphedMicroStep(LossFunction loss, Sharded& engine);
  // Adds the gradients of the batch's loss to those of the step; returns the loss. `last`: of the step. The loss has
  // one term, which is a mean: totals of several weights change from step to step. An Error otherwise, and where it has
  // values to log.
  StepLoss run(const Batch& batch, bool last);

 private:
  struct Recorded {
    int runs = 0;
    Batch batch;    // where the graph reads
    Tensor loss;    // f32 scalar, where it writes
    StepLoss kind;  // without that number
    double flops = 0;
    Graph graph;
    std::vector<Leaf*> reached;  // that hold a gradient afterwards
  };
  Loss forward_backward(const Batch& batch, bool last);
  void run_recorded(Recorded& recorded, const Batch& batch, bool last);

  LossFunction loss_;
  Sharded& engine_;
  Context context_;
  Stream stream_;
  KeptMemory memory_;
  Recorded first_, later_;
};

}  // namespace keel
