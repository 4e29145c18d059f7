#include "keel/runtime/emulation/cudart.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "keel/runtime/emulation/graph.h"

using keel::emulation::Machine;

namespace {

// What CUDA keeps for each thread.
struct Thread {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  std::string last_failure;  // of device work
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  std::uint64_t first_failure = Machine::get().failures();  // earlier ones are not this thread's
  std::map<int, std::uint64_t> told;                        // by device: the newest failure that it heard of
};
Thread& thread() {
  thread_local Thread state;
  return state;
}

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) thread().last_error = error;
  return error;
}

// What a wait for the device answers: the failure of its work, once.
cudaError_t answer_for(int device) {
  if (Machine::get().is_lost(device)) return answer(cudaErrorIllegalAddress);
  std::uint64_t& told = thread().told.try_emplace(device, thread().first_failure).first->second;
  std::string failure = Machine::get().failure_after(device, &told);
  if (failure.empty()) return cudaSuccess;
  thread().last_failure = std::move(failure);
  return answer(cudaErrorLaunchFailure);
}

CUstream_st* stream_or_default(cudaStream_t stream) {
  return stream != nullptr ? stream : Machine::get().default_stream(thread().device);
}

// What a question for work of the device answers.
cudaError_t answer_to_question(CUstream_st* stream, std::uint64_t position) {
  if (Machine::get().is_lost(stream->device)) return answer(cudaErrorIllegalAddress);
  return answer(Machine::get().is_done(stream, position) ? cudaSuccess : cudaErrorNotReady);
}

// Calls that CUDA forbids while some stream is captured.
bool spoils_a_capture() { return Machine::get().spoils_captures(thread().capture_mode); }

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge: return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread: return "attempt to terminate a thread-local capture from another thread";
    case cudaErrorLaunchFailure: return thread().last_failure.c_str();
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return std::exchange(thread().last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::get().devices();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::get().devices()) return answer(cudaErrorInvalidDevice);
  thread().device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = thread().device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  Machine::get().wait_for_device(thread().device);
  return answer_for(thread().device);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Machine& machine = Machine::get();
  *total = machine.bytes_in_all();
  *free = *total - machine.bytes_in_use(thread().device);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = nullptr;
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  if (Machine::get().is_lost(thread().device)) return answer(cudaErrorIllegalAddress);
  *memory = Machine::get().allocate(thread().device, bytes);
  return *memory != nullptr || bytes == 0 ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  const int device = Machine::get().device_of(memory);
  if (device < 0) return answer(cudaErrorInvalidValue);
  Machine::get().wait_for_device(device);
  return Machine::get().release(memory) ? answer_for(device) : answer(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  *memory = nullptr;
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  *memory = Machine::get().allocate_pinned(bytes);
  return *memory != nullptr ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  return Machine::get().release_pinned(memory) ? cudaSuccess : answer(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr); error != cudaSuccess) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Machine& machine = Machine::get();
  const bool from_device = machine.device_of(from) >= 0, to_device = machine.device_of(to) >= 0;
  const cudaMemcpyKind found = from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                                           : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
  if (kind != cudaMemcpyDefault && kind != found) return answer(cudaErrorInvalidValue);
  CUstream_st* queue = stream_or_default(stream);
  const bool reads_pageable = !from_device && !machine.is_pinned(from);
  const bool writes_pageable = !to_device && !machine.is_pinned(to);
  if ((reads_pageable || writes_pageable) && machine.spoils_capture_of(queue))
    return answer(cudaErrorStreamCaptureUnsupported);
  if (found == cudaMemcpyHostToDevice && reads_pageable) {
    auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    return answer(machine.enqueue(queue, {.run = [=] { std::memcpy(to, staged->data(), bytes); }}));
  }
  const cudaError_t error = machine.enqueue(queue, {.run = [=] { std::memmove(to, from, bytes); }});
  if (error != cudaSuccess) return answer(error);
  return found == cudaMemcpyDeviceToHost && writes_pageable ? cudaStreamSynchronize(queue) : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return answer(Machine::get().enqueue(stream_or_default(stream), {.run = [=] { std::memset(memory, value, bytes); }}));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = Machine::get().create_stream(thread().device);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return answer(cudaErrorInvalidResourceHandle);
  Machine::get().destroy_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUstream_st* queue = stream_or_default(stream);
  if (Machine::get().spoils_capture_of(queue)) return answer(cudaErrorStreamCaptureUnsupported);
  Machine::get().wait_for(queue);
  return answer_for(queue->device);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUstream_st* queue = stream_or_default(stream);
  if (Machine::get().spoils_capture_of(queue)) return answer(cudaErrorStreamCaptureUnsupported);
  return answer_to_question(queue, Machine::get().enqueued(queue));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return answer(Machine::get().wait_event(stream_or_default(stream), event));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{.device = thread().device, .timed = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUstream_st* queue = stream_or_default(stream);
  if (event->device != queue->device) return answer(cudaErrorInvalidResourceHandle);
  if (event->timed) {
    event->time = std::make_shared<std::chrono::steady_clock::time_point>();
    const auto note = [time = event->time] { *time = std::chrono::steady_clock::now(); };
    if (const cudaError_t error = Machine::get().enqueue(queue, {.run = note}); error != cudaSuccess)
      return answer(error);
  }
  return answer(Machine::get().record(event, queue));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture != nullptr) return answer(cudaErrorCapturedEvent);
  if (event->stream == nullptr) return cudaSuccess;
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  Machine::get().wait_for(event->stream, event->position);
  return answer_for(event->stream->device);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture != nullptr) return answer(cudaErrorCapturedEvent);
  if (event->stream == nullptr) return cudaSuccess;
  if (spoils_a_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  return answer_to_question(event->stream, event->position);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t event : {begin, end}) {
    if (!event->timed || event->stream == nullptr) return answer(cudaErrorInvalidResourceHandle);
    if (event->capture != nullptr) return answer(cudaErrorCapturedEvent);
    if (!Machine::get().is_done(event->stream, event->position)) return answer(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return answer(Machine::get().begin_capture(stream_or_default(stream), mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return answer(Machine::get().end_capture(stream_or_default(stream), graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = Machine::get().capture_status(stream_or_default(stream));
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(thread().capture_mode, *mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return answer(Machine::get().launch_graph(executable->graph, stream_or_default(stream)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
