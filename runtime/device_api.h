#pragma once
// What the runtime asks of a kind of device: memory, copies, streams and events.
//
// The processor answers everything at once. A GPU answers through CUDA's runtime library, which the emulator offers
// too. Streams and events are wrapped by keel/runtime/stream.h; memory by Allocator.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "keel/runtime/device.h"
#include "keel/runtime/fault.h"

namespace keel {

// Handles of the device's library; null is the processor's stream, and an event that has passed.
using NativeStream = void*;
using NativeEvent = void*;
using NativeGraph = void*;

struct DeviceMemory {
  std::int64_t free = 0, total = 0;  // bytes; a total of 0: nobody knows
};

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  // Makes this the device of the calling thread, which launches and library calls ask for.
  virtual void make_current() const = 0;

  virtual void* allocate(std::size_t bytes) = 0;  // null when the device is full
  virtual void release(void* memory) noexcept = 0;
  virtual DeviceMemory memory() const = 0;
  // The same for all who have this device open, in all processes of the machine, and no other device's.
  virtual std::string identity() const = 0;
  // "; 3 bytes free of 5 on the device", or "" where nobody knows.
  virtual std::string free_memory() const = 0;
  // From here in the stream, the first `bytes` of a cached block may be touched and the rest may not: for sanitizers.
  virtual void allow_access(void* block, std::size_t bytes, std::size_t block_bytes, NativeStream stream) noexcept = 0;

  // Between this device and the host, or on this device. Pageable host memory may be reused on return.
  virtual void copy(void* to, const void* from, std::size_t bytes, NativeStream stream) = 0;
  virtual void set_bytes(void* memory, int value, std::size_t bytes, NativeStream stream) = 0;

  virtual NativeStream create_stream(bool urgent) = 0;
  virtual void destroy_stream(NativeStream stream) noexcept = 0;
  virtual void synchronize(NativeStream stream) = 0;  // throws what the device's work did wrong
  virtual NativeEvent record(NativeStream stream) = 0;
  virtual void destroy_event(NativeEvent event) noexcept = 0;
  virtual void wait(NativeStream stream, NativeEvent event) = 0;
  virtual void synchronize_event(NativeEvent event) = 0;
  virtual bool has_passed(NativeEvent event) = 0;  // throws where it never will, as the device has failed
  // An event that knows when it passed, and the milliseconds between two of them that have passed.
  virtual NativeEvent record_time(NativeStream stream) = 0;
  virtual double milliseconds_between(NativeEvent begin, NativeEvent end) = 0;

  // Between the two, what is asked of the stream is recorded and does not happen.
  virtual void begin_capture(NativeStream stream) = 0;
  virtual NativeGraph end_capture(NativeStream stream) = 0;
  virtual void launch_graph(NativeGraph graph, NativeStream stream) = 0;
  virtual void destroy_graph(NativeGraph graph) noexcept = 0;

  // Where kernels report bad data; null on the processor, whose kernels throw.
  virtual Fault* fault() = 0;
};

std::shared_ptr<DeviceApi> processor_api();
// Host memory that the device reads and writes by itself, in its own time.
std::shared_ptr<DeviceApi> pinned_api(Device device);
// Throws an Error for a device that this machine or this build does not have.
std::shared_ptr<DeviceApi> open_device(Device device);

// How many devices of a type there are, and why there are none.
struct DeviceCount {
  int count = 0;
  std::string why_none = {};
};
DeviceCount count_devices(DeviceType type);
// "NVIDIA H200, 139 GiB, driver 13.0" and the like.
std::string describe_device(Device device);

}  // namespace keel
