#include "keel/trainer/micro_step.h"

#include <algorithm>

#include "keel/autograd/flops.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

constexpr int kWarmUps = 2;  // libraries make their handles, and every size of memory has been asked for

// Whether a graph that reads one may read the other in its place.
bool alike(const Batch& a, const Batch& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.dtype() == y.second.dtype() && x.second.shape() == y.second.shape();
  };
  return a.weights() == b.weights() && std::ranges::equal(a.fields(), b.fields(), same);
}

// A graph is recorded of a batch that counts, in every weight.
bool weighs(const Batch& batch) {
  return std::ranges::none_of(batch.weights(), [](const auto& weight) { return weight.second == 0; });
}

Batch clone(const Batch& batch) {
  Batch copy(kernels::clone(batch.sample_ids()), batch.examples());
  for (const auto& [name, tensor] : batch.fields()) copy.set(name, kernels::clone(tensor));
  for (const auto& [name, value] : batch.weights())
    if (name != kRowWeight) copy.set_weight(name, value);
  return copy;
}

}  // namespace

GraphedMicroStep::GraphedMicroStep(LossFunction loss, Sharded& engine)
    : loss_(std::move(loss)),
      engine_(engine),
      context_(engine.context()),
      stream_(context_.make_stream()),
      memory_(context_, stream_) {
  if (!stream_.is_asynchronous())
    throw Error(concat("cuda_graph needs a GPU, but the device is ", context_.device()), ErrorKind::unsupported);
  if (engine.size() > 1)
    throw Error("cuda_graph is for one rank: collectives between ranks are not recorded", ErrorKind::unsupported);
  if (engine.changes_buffers())
    throw Error(
        "cuda_graph is not for models whose buffers change (batch norm's running statistics): the processor "
        "counts what they observe, and a graph runs without it",
        ErrorKind::unsupported);
}

StepLoss GraphedMicroStep::run(const Batch& batch, bool last) {
  Recorded& recorded = engine_.weight() == 0 ? first_ : later_;
  const Stream outer = context_.stream();
  // What outlives a run has memory of another stream: that of the graph's own is written at every launch.
  if (recorded.batch.rows() == 0 && weighs(batch)) {
    recorded.batch = clone(batch);
    recorded.loss = empty(context_, {});
    recorded.batch.used_by(stream_);
    recorded.loss.storage()->used_by(stream_);
  }
  stream_.wait(outer.record());
  StepLoss loss;
  {
    const StreamScope scope(context_, stream_);
    batch.used_by(stream_);
    if (alike(recorded.batch, batch)) {
      run_recorded(recorded, batch, last);
      count_flops(recorded.flops);
      loss = recorded.kind.with(recorded.loss);
    } else {
      loss = StepLoss(forward_backward(batch, last), batch);
    }
  }
  outer.wait(stream_.record());
  return loss;
}

void GraphedMicroStep::run_recorded(Recorded& recorded, const Batch& batch, bool last) {
  for (const auto& [name, tensor] : recorded.batch.fields()) kernels::copy_into(tensor, batch[name]);
  const auto work = [&] {
    const FlopCount count;
    const Loss loss = forward_backward(recorded.batch, last);
    recorded.flops = count.flops();
    kernels::copy_into(recorded.loss, loss.terms().front().value.value());
    if (recorded.kind.kinds().empty()) recorded.kind = StepLoss(loss, recorded.batch);
  };
  if (recorded.runs++ < kWarmUps) return work();
  if (recorded.graph) {
    const std::string& weight = recorded.kind.kinds().front().weight;
    engine_.count_backward({.weight = recorded.batch.weight(weight), .last = last});
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

Loss GraphedMicroStep::forward_backward(const Batch& batch, bool last) {
  Forward pass{
      .training = true, .random = {}, .sample_ids = batch.sample_ids(), .dtype = engine_.options().policy.parameter};
  Loss loss = loss_(batch, pass);
  if (loss.terms().size() != 1 || loss.terms().front().is_sum || !loss.logged().empty())
    throw Error(MessageLines{concat(
                    "cuda_graph repeats a loss of one term that is a mean, without values to log; set it to false. "
                    "This loss has\n",
                    loss.description())},
                ErrorKind::unsupported);
  backward(engine_, loss, batch, {}, last);
  return loss;
}

}  // namespace keel
