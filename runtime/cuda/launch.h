#pragma once
// The CUDA language for whichever compiler reads a .cu file, and the one way to start a kernel.
//
// nvcc reads cuda_runtime.h; a host compiler reads keel's emulation, where a launch runs on the processor. There is no
// <<<>>>, so that a .cu file is legal C++ for both.

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "keel/runtime/error.h"

#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/language.h"
#include "keel/runtime/emulation/machine.h"
#include "keel/runtime/emulation/shared.h"
#else
#include <cuda_runtime.h>

#include <cstdint>
#endif

namespace keel::cuda {

// Shared memory, with one way to declare it: KEEL_SHARED(float, partial, 32) in a kernel is an array of 32 that the
// threads of a block share; dynamic_span<float>() is the array whose bytes the launch asked for. Both begin at a
// multiple of 16 bytes. The emulator checks each access through [] for bounds and races; data() is for vector accesses.
#ifdef KEEL_EMULATED
using emulation::dynamic_span;
#else
template <class T>
struct SharedSpan {
  T* elements;
  __device__ T& operator[](std::int64_t index) const { return elements[index]; }
  __device__ T* data() const { return elements; }
};

template <class T>
__device__ SharedSpan<T> dynamic_span() {
  extern __shared__ __align__(128) unsigned char keel_dynamic_shared[];
  return {reinterpret_cast<T*>(keel_dynamic_shared)};
}

#define KEEL_SHARED(T, name, n)                  \
  __shared__ __align__(16) T name##_elements[n]; \
  const ::keel::cuda::SharedSpan<T> name { name##_elements }
#endif

struct LaunchShape {
  dim3 grid = 1, block = 1;
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block
};

// The kernels that this thread queued last, for messages: a GPU tells of a failure at a later call, without a name.
class RecentLaunches {
 public:
  static constexpr unsigned kKept = 6;
  void note(const char* name) { names_[count_++ % kKept] = name; }
  std::string text() const {  // the latest first
    std::string text;
    for (unsigned i = 0; i < kKept && i < count_; ++i)
      text += concat(i == 0 ? "" : ", ", names_[(count_ - 1 - i) % kKept]);
    return text;
  }

 private:
  const char* names_[kKept] = {};
  unsigned count_ = 0;
};
inline thread_local RecentLaunches recent_launches;

// The text of an error. A GPU reports a failed kernel at any later call, without its name, and then serves this process
// no more; so the text lists the kernels that were queued last. The emulator names the kernel itself.
inline std::string text_of(cudaError_t error) {
  std::string text = cudaGetErrorString(error);
#ifndef KEEL_EMULATED
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      text += concat(", in a kernel that was queued before; the last of this thread: ", recent_launches.text(),
                     ". CUDA_LAUNCH_BLOCKING=1 finds it; this process cannot use the GPU any more");
      break;
    default: break;
  }
#endif
  return text;
}

// Throws an Error that names `what` unless the call succeeded.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) [[unlikely]]
    throw Error(concat(what, ": ", text_of(error)), ErrorKind::internal);
}

// Bytes of dynamic shared memory that a block may have on the current device.
inline std::size_t shared_memory_limit() {
#ifdef KEEL_EMULATED
  return emulation::kDynamicSharedLimit;
#else
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
#endif
}

#ifndef KEEL_EMULATED
// Lets a launch of the kernel on the current device ask for so much dynamic shared memory. Without it 48 KB are the
// limit, of static and dynamic memory together.
void allow_shared_memory(const void* kernel, std::size_t bytes, const char* name);
#endif

// Queues kernel(args...) on a stream. The arguments are converted to the kernel's own parameter types and copied at
// the call. `name` is for messages. What the kernel does wrong comes to light at a later wait.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
            Args&&... args) {
  static_assert(sizeof...(Params) == sizeof...(Args), "the kernel has another number of parameters");
  recent_launches.note(name);
  std::tuple<std::remove_cv_t<Params>...> parameters{static_cast<Params>(std::forward<Args>(args))...};
#ifdef KEEL_EMULATED
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  auto& machine = emulation::Machine::get();
  const emulation::Grid grid{name, shape.grid, shape.block, shape.shared_bytes, reinterpret_cast<const void*>(kernel)};
  emulation::check_shape(grid);
  const auto run = [grid, kernel, parameters, options = emulation::grid_options()] {
    const auto body = [&] { std::apply(kernel, parameters); };
    emulation::run_grid(grid, options, body);
  };
  if (stream != nullptr && stream->device != device) check(cudaErrorInvalidResourceHandle, name);
  check(machine.enqueue(stream != nullptr ? stream : machine.default_stream(device), {.run = run}), name);
#else
  std::apply(
      [&](auto&... parameter) {
        void* pointers[] = {static_cast<void*>(&parameter)..., nullptr};
        const void* const code = reinterpret_cast<const void*>(kernel);
        if (shape.shared_bytes != 0) allow_shared_memory(code, shape.shared_bytes, name);
        check(cudaLaunchKernel(code, shape.grid, shape.block, pointers, shape.shared_bytes, stream), name);
      },
      parameters);
#endif
}

}  // namespace keel::cuda
