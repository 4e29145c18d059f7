#include "keel/runtime/emulation/cudart.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "keel/runtime/emulation/machine.h"

using keel::emulation::Machine;

namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_failure;  // of a kernel

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What a wait for the device answers: the failure of its work, once.
cudaError_t answer_for(int device) {
  std::string failure = Machine::get().take_failure(device);
  if (failure.empty()) return cudaSuccess;
  last_failure = std::move(failure);
  return answer(cudaErrorLaunchFailure);
}

CUstream_st* stream_or_default(cudaStream_t stream) {
  return stream != nullptr ? stream : Machine::get().default_stream(current_device);
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return last_failure.c_str();
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::get().devices();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::get().devices()) return answer(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Machine::get().wait_for_device(current_device);
  return answer_for(current_device);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Machine& machine = Machine::get();
  *total = machine.bytes_in_all();
  *free = *total - machine.bytes_in_use(current_device);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = Machine::get().allocate(current_device, bytes);
  return *memory != nullptr || bytes == 0 ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const int device = Machine::get().device_of(memory);
  if (device < 0) return answer(cudaErrorInvalidValue);
  Machine::get().wait_for_device(device);
  return Machine::get().release(memory) ? answer_for(device) : answer(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  *memory = Machine::get().allocate_pinned(bytes);
  return *memory != nullptr ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  return Machine::get().release_pinned(memory) ? cudaSuccess : answer(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
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
  if (found == cudaMemcpyHostToDevice && !machine.is_pinned(from)) {
    auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    machine.enqueue(queue, {.run = [=] { std::memcpy(to, staged->data(), bytes); }});
    return cudaSuccess;
  }
  machine.enqueue(queue, {.run = [=] { std::memmove(to, from, bytes); }});
  if (found == cudaMemcpyDeviceToHost && !machine.is_pinned(to)) return cudaStreamSynchronize(queue);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  Machine::get().enqueue(stream_or_default(stream), {.run = [=] { std::memset(memory, value, bytes); }});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = Machine::get().create_stream(current_device);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return answer(cudaErrorInvalidResourceHandle);
  Machine::get().destroy_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUstream_st* queue = stream_or_default(stream);
  Machine::get().wait_for(queue);
  return answer_for(queue->device);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const CUstream_st* queue = stream_or_default(stream);
  return Machine::get().is_done(queue, Machine::get().enqueued(queue)) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->stream != nullptr)
    Machine::get().enqueue(stream_or_default(stream), {.needs = event->stream, .position = event->position});
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Machine::get().enqueue(stream_or_default(stream), {.run = [=] { function(data); }});
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream_or_default(stream);
  event->position = Machine::get().enqueued(event->stream);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream == nullptr) return cudaSuccess;
  Machine::get().wait_for(event->stream, event->position);
  return answer_for(event->stream->device);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->stream == nullptr || Machine::get().is_done(event->stream, event->position) ? cudaSuccess
                                                                                            : cudaErrorNotReady;
}
