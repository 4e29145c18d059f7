#pragma once
// How elementwise CUDA kernels see their operands: eight neighbouring elements at a time, of any dtype and layout.
//
// The dtype and the layout are looked up at run time, the same way for all threads, so that an operation is compiled
// once for each compute type (float or std::int64_t; copies also double).

#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/strides.h"

namespace keel::cuda {

inline constexpr int kRun = 8;  // elements of a thread

struct Operand {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool runs = false;  // dense, and aligned for whole runs
  Strides strides;

  Operand() = default;
  explicit Operand(const Tensor& tensor) : data(tensor.raw()), dtype(tensor.dtype()) {
    const Layout layout(tensor);
    runs = layout.dense() && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    strides = Strides(layout);
  }

  // Where the element of row-major number i lies.
  __device__ std::int64_t offset_of(std::int64_t i) const { return strides.offset_of(i); }
};

template <class T, class C>
__device__ void load_run_as(const Operand& operand, std::int64_t first, int count, C* out) {
  const T* data = static_cast<const T*>(operand.data);
  if (operand.runs && count == kRun) {
    struct alignas(kRun * sizeof(T) < 16 ? kRun * sizeof(T) : 16) Run {
      T values[kRun];
    };
    const Run run = *reinterpret_cast<const Run*>(data + first);
    for (int i = 0; i < kRun; ++i) out[i] = widen<C>(run.values[i]);
  } else {
    for (int i = 0; i < count; ++i) out[i] = widen<C>(data[operand.offset_of(first + i)]);
  }
}

template <class T, class C>
__device__ void store_run_as(const Operand& operand, std::int64_t first, int count, const C* in) {
  T* data = static_cast<T*>(operand.data);
  if (operand.runs && count == kRun) {
    struct alignas(kRun * sizeof(T) < 16 ? kRun * sizeof(T) : 16) Run {
      T values[kRun];
    };
    Run run;
    for (int i = 0; i < kRun; ++i) run.values[i] = narrow<T>(in[i]);
    *reinterpret_cast<Run*>(data + first) = run;
  } else {
    for (int i = 0; i < count; ++i) data[operand.offset_of(first + i)] = narrow<T>(in[i]);
  }
}

// Elements [first, first + count) in row-major order, as C. A float kernel meets no f64 and no i64.
template <class C>
__device__ void load_run(const Operand& operand, std::int64_t first, int count, C* out) {
  switch (operand.dtype) {
    case DType::f32: return load_run_as<float>(operand, first, count, out);
    case DType::bf16: return load_run_as<bf16>(operand, first, count, out);
    case DType::f16: return load_run_as<f16>(operand, first, count, out);
    case DType::f64: return load_run_as<double>(operand, first, count, out);
    case DType::i32: return load_run_as<std::int32_t>(operand, first, count, out);
    case DType::i64: return load_run_as<std::int64_t>(operand, first, count, out);
    case DType::u8: return load_run_as<std::uint8_t>(operand, first, count, out);
  }
}
template <class C>
__device__ void store_run(const Operand& operand, std::int64_t first, int count, const C* in) {
  switch (operand.dtype) {
    case DType::f32: return store_run_as<float>(operand, first, count, in);
    case DType::bf16: return store_run_as<bf16>(operand, first, count, in);
    case DType::f16: return store_run_as<f16>(operand, first, count, in);
    case DType::f64: return store_run_as<double>(operand, first, count, in);
    case DType::i32: return store_run_as<std::int32_t>(operand, first, count, in);
    case DType::i64: return store_run_as<std::int64_t>(operand, first, count, in);
    case DType::u8: return store_run_as<std::uint8_t>(operand, first, count, in);
  }
}

// The inputs of an elementwise kernel; a fixed array, since kernels take their arguments by value.
template <int N>
struct Operands {
  Operand in[N > 0 ? N : 1];
  Operand out;
  std::int64_t count;
};

// out = f(in...) for one run of each thread. F is a device function object (C* out, const C (&in)[N][kRun], int count).
template <class C, int N, class F>
__global__ void elementwise_kernel(Operands<N> operands, F f) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kRun;
  if (first >= operands.count) return;
  const int count = operands.count - first < kRun ? static_cast<int>(operands.count - first) : kRun;
  C in[N > 0 ? N : 1][kRun], out[kRun];
  for (int n = 0; n < N; ++n) load_run(operands.in[n], first, count, in[n]);
  for (int i = 0; i < count; ++i) {
    if constexpr (N == 0) out[i] = f(first + i);
    else if constexpr (N == 1) out[i] = f(in[0][i]);
    else if constexpr (N == 2) out[i] = f(in[0][i], in[1][i]);
    else out[i] = f(in[0][i], in[1][i], in[2][i]);
  }
  store_run(operands.out, first, count, out);
}

// Queues out = f(in...), element by element. F takes N numbers of C, or the element's number without inputs. The
// inputs have out's shape (strides of 0 where they repeat) and may be out.
template <class C, class F, class... In>
void run_elementwise(const char* name, const Tensor& out, F f, const In&... in) {
  if (out.numel() == 0) return;
  constexpr int kInputs = static_cast<int>(sizeof...(In));
  constexpr int kThreads = 256;
  Operands<kInputs> operands;
  int n = 0;
  ((operands.in[n++] = Operand(in)), ...);
  operands.out = Operand(out);
  operands.count = out.numel();
  const auto blocks = static_cast<unsigned>(ceil_div(out.numel(), std::int64_t{kThreads} * kRun));
  launch(name, elementwise_kernel<C, kInputs, F>, {blocks, kThreads}, stream_of(out), operands, f);
}

}  // namespace keel::cuda
