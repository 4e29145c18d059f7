#include "keel/trainer/micro_step.h"

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

constexpr int kWarmUps = 2;  // libraries make their handles, and every size of memory has been asked for

bool alike(const Batch& a, const Batch& b) {
  return a.inputs.shape() == b.inputs.shape() && a.target_tokens == b.target_tokens;
}

}  // namespace

GraphedMicroStep::GraphedMicroStep(const Gpt& model, Sharded& engine)
    : model_(model),
      engine_(engine),
      context_(engine.context()),
      stream_(context_.make_stream()),
      memory_(context_, stream_) {
  if (!stream_.is_asynchronous())
    throw Error(concat("cuda_graph needs a GPU, but the device is ", context_.device()), ErrorKind::unsupported);
  if (engine.size() > 1)
    throw Error("cuda_graph is for one rank: collectives between ranks are not recorded", ErrorKind::unsupported);
}

HostCopy GraphedMicroStep::run(const Batch& batch, bool last) {
  Recorded& recorded = engine_.tokens() == 0 ? first_ : later_;
  const Stream outer = context_.stream();
  // What outlives a run has memory of another stream: that of the graph's own is written at every launch.
  if (!recorded.batch.inputs.defined() && batch.target_tokens > 0) {
    recorded.batch = {kernels::clone(batch.inputs), kernels::clone(batch.targets), kernels::clone(batch.sample_ids),
                      batch.target_tokens};
    recorded.loss = empty(context_, {});
    for (const Tensor& tensor :
         {recorded.batch.inputs, recorded.batch.targets, recorded.batch.sample_ids, recorded.loss})
      tensor.storage()->used_by(stream_);
  }
  stream_.wait(outer.record());
  HostCopy loss;
  {
    const StreamScope scope(context_, stream_);
    for (const Tensor& tensor : {batch.inputs, batch.targets, batch.sample_ids}) tensor.storage()->used_by(stream_);
    if (alike(recorded.batch, batch)) {
      run_recorded(recorded, batch, last);
      loss = HostCopy(recorded.loss);
    } else {
      loss = HostCopy(forward_backward(batch, last));
    }
  }
  outer.wait(stream_.record());
  return loss;
}

void GraphedMicroStep::run_recorded(Recorded& recorded, const Batch& batch, bool last) {
  kernels::copy_into(recorded.batch.inputs, batch.inputs);
  kernels::copy_into(recorded.batch.targets, batch.targets);
  const auto work = [&] { kernels::copy_into(recorded.loss, forward_backward(recorded.batch, last)); };
  if (recorded.runs++ < kWarmUps) return work();
  if (recorded.graph) {
    engine_.count_backward({.tokens = batch.target_tokens, .last = last});
    for (Leaf* leaf : recorded.reached) leaf->has_grad = true;
  } else {
    recorded.graph = Graph::record(context_, stream_, work);
    for (const auto& unit : engine_.units())
      for (const Segment& segment : unit->layout().segments)
        if (Leaf* leaf = segment.parameter->variable.leaf().get(); leaf != nullptr && leaf->has_grad)
          recorded.reached.push_back(leaf);
  }
  recorded.graph.launch();
}

Tensor GraphedMicroStep::forward_backward(const Batch& batch, bool last) {
  Forward pass{.training = true, .random = {}, .sample_ids = batch.sample_ids};
  const CrossEntropyLoss result = model_.loss(batch.inputs, batch.targets, pass);
  engine_.backward(result.loss, {.tokens = batch.target_tokens, .last = last});
  return result.loss.value();
}

}  // namespace keel
