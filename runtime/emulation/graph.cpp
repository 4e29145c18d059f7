#include "keel/runtime/emulation/graph.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/random.h"

namespace keel::emulation {
namespace {

void add_all(std::vector<std::size_t>& set, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more)
    if (std::find(set.begin(), set.end(), node) == set.end()) set.push_back(node);
}

// For each node, whether it is one of `tips` or comes before one.
std::vector<bool> leads_to(const CUgraph_st& graph, const std::vector<std::size_t>& tips) {
  std::vector<bool> found(graph.nodes.size());
  for (const std::size_t tip : tips) found[tip] = true;
  for (std::size_t node = graph.nodes.size(); node-- > 0;)
    if (found[node])
      for (const std::size_t before : graph.nodes[node].after) found[before] = true;
  return found;
}

}  // namespace

void run_nodes(const CUgraph_st& graph, std::uint64_t seed) {
  std::vector<std::size_t> missing(graph.nodes.size()), ready;
  std::vector<std::vector<std::size_t>> behind(graph.nodes.size());
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    missing[node] = graph.nodes[node].after.size();
    for (const std::size_t before : graph.nodes[node].after) behind[before].push_back(node);
    if (missing[node] == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    auto next = std::max_element(ready.begin(), ready.end());
    if (seed != 0) next = ready.begin() + static_cast<std::ptrdiff_t>((seed = mix64(seed)) % ready.size());
    const std::size_t node = *next;
    ready.erase(next);
    graph.nodes[node].run();
    for (const std::size_t later : behind[node])
      if (--missing[later] == 0) ready.push_back(later);
  }
}

cudaError_t Machine::enqueue(CUstream_st* stream, CUstream_st::Operation operation, Place* place) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_.contains(stream->device)) return cudaErrorIllegalAddress;
    if (Capture* capture = stream->capture.get()) {
      if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
      capture->graph.nodes.push_back({std::move(operation.run), std::move(stream->tips)});
      stream->tips = {capture->graph.nodes.size() - 1};
      return cudaSuccess;
    }
    if (place != nullptr) *place = {stream, stream->enqueued()};
    stream->queue.push_back(std::move(operation));
    ++happenings_;
  }
  happened_.notify_all();
  return cudaSuccess;
}

cudaError_t Machine::begin_capture(CUstream_st* stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(mutex_);
  if (stream == default_streams_[static_cast<std::size_t>(stream->device)]) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->streams = {stream};
  stream->capture = capture;
  stream->tips.clear();
  captures_.push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t Machine::end_capture(CUstream_st* stream, CUgraph_st** graph) {
  const std::lock_guard lock(mutex_);
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != stream) {
    capture->valid = false;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const std::vector<bool> joined = leads_to(capture->graph, stream->tips);
  bool all_joined = true;
  for (CUstream_st* member : capture->streams) {
    for (const std::size_t tip : member->tips) all_joined = all_joined && joined[tip];
    member->capture = nullptr;
    member->tips.clear();
  }
  capture->active = false;
  std::erase(captures_, capture);
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (!all_joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st(std::move(capture->graph));
  return cudaSuccess;
}

cudaStreamCaptureStatus Machine::capture_status(const CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  if (stream->capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream->capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
}

bool Machine::spoils_capture_of(CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  if (stream->capture == nullptr) return false;
  stream->capture->valid = false;
  return true;
}

bool Machine::spoils_captures(cudaStreamCaptureMode of_thread) {
  const std::lock_guard lock(mutex_);
  if (of_thread == cudaStreamCaptureModeRelaxed) return false;
  bool spoilt = false;
  for (const auto& capture : captures_) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool anyones = of_thread == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!own && !anyones) continue;
    capture->valid = false;
    spoilt = true;
  }
  return spoilt;
}

cudaError_t Machine::record(CUevent_st* event, CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  if (lost_.contains(stream->device)) return cudaErrorIllegalAddress;
  event->capture = stream->capture;
  event->tips = stream->tips;
  event->stream = stream;
  event->position = stream->enqueued();
  return stream->capture == nullptr || stream->capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

cudaError_t Machine::wait_event(CUstream_st* stream, const CUevent_st* event) {
  {
    const std::lock_guard lock(mutex_);
    if (event->capture != nullptr) {
      if (!event->capture->active) return cudaErrorCapturedEvent;
      if (stream->capture != nullptr && stream->capture != event->capture) {
        stream->capture->valid = event->capture->valid = false;
        return cudaErrorStreamCaptureMerge;
      }
      if (stream->capture == nullptr) {
        stream->capture = event->capture;
        stream->capture->streams.push_back(stream);
      }
      add_all(stream->tips, event->tips);
      return cudaSuccess;
    }
    if (event->stream == nullptr) return cudaSuccess;
    if (stream->capture != nullptr) {
      stream->capture->valid = false;
      return cudaErrorStreamCaptureIsolation;
    }
  }
  return enqueue(stream, {.needs = event->stream, .position = event->position});
}

cudaError_t Machine::launch_graph(std::shared_ptr<const CUgraph_st> graph, CUstream_st* stream) {
  std::uint64_t seed = 0;
  {
    const std::lock_guard lock(mutex_);
    if (options_.drain_seed != 0) seed = draw();
  }
  return enqueue(stream, {.run = [graph = std::move(graph), seed] { run_nodes(*graph, seed); }});
}

}  // namespace keel::emulation
