#pragma once
// How elementwise CUDA kernels see their operands: runs of eight neighbouring elements of any dtype.
//
// The dtype and the layout are looked up at run time, the same way for all threads, so that an operation is compiled
// once for each compute type (float or std::int64_t; copies also double).

#include <algorithm>

#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/strides.h"

namespace keel::cuda {

inline constexpr int kRun = 8;                   // elements of a thread
inline constexpr int kElementwiseThreads = 256;  // of a block
inline constexpr int kElementwiseBlock = kElementwiseThreads * kRun;

struct Operand {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool repeats = false;  // a run is one element
  bool runs = false;     // one access reads a whole run, wherever it begins
  Strides strides;

  Operand() = default;
  explicit Operand(const Tensor& tensor) : data(tensor.raw()), dtype(tensor.dtype()) {
    const Layout layout(tensor);
    strides = Strides(layout);
    const int last = layout.shape.size() - 1;
    repeats = layout.strides[last] == 0;
    const bool whole = last == 0 || layout.shape[last] % kRun == 0;  // a run stays in its row
    bool aligned = layout.strides[last] == 1 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    for (int d = 0; d < last; ++d) aligned = aligned && layout.strides[d] % kRun == 0;
    runs = whole && (repeats || aligned);
  }
};

// Calls f(TypeTag<T>{}) with the type of `dtype`, of those that a kernel of C meets: double all, float the other floats
// and conditions, std::int64_t integers.
template <class C, class F>
__device__ void visit_stored(DType dtype, const F& f) {
  constexpr bool kAll = std::is_same_v<C, double>;
  if constexpr (kAll || std::is_same_v<C, float>) {
    if (dtype == DType::f32) return f(TypeTag<float>{});
    if (dtype == DType::bf16) return f(TypeTag<bf16>{});
    if (dtype == DType::f16) return f(TypeTag<f16>{});
  }
  if constexpr (kAll || std::is_same_v<C, std::int64_t>) {
    if (dtype == DType::i32) return f(TypeTag<std::int32_t>{});
    if (dtype == DType::i64) return f(TypeTag<std::int64_t>{});
  }
  if constexpr (kAll)
    if (dtype == DType::f64) return f(TypeTag<double>{});
  if (dtype == DType::u8) f(TypeTag<std::uint8_t>{});
}

template <class T>
struct alignas(kRun * sizeof(T) < 16 ? kRun * sizeof(T) : 16) Run {
  T values[kRun];
};

// The run that begins with the element of row-major number `first`, a multiple of kRun.
template <class C>
__device__ void load_run(const Operand& operand, std::int64_t first, C (&out)[kRun]) {
  const std::int64_t offset = operand.strides.offset_of(first);
  visit_stored<C>(operand.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = static_cast<const T*>(operand.data) + offset;
    if (operand.repeats) {
      const C value = widen<C>(*from);
#pragma unroll
      for (int i = 0; i < kRun; ++i) out[i] = value;
    } else {
      const Run<T> run = *reinterpret_cast<const Run<T>*>(from);
#pragma unroll
      for (int i = 0; i < kRun; ++i) out[i] = widen<C>(run.values[i]);
    }
  });
}
template <class C>
__device__ void store_run(const Operand& operand, std::int64_t first, const C (&in)[kRun]) {
  const std::int64_t offset = operand.strides.offset_of(first);
  visit_stored<C>(operand.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Run<T> run;
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.values[i] = narrow<T>(in[i]);
    *reinterpret_cast<Run<T>*>(static_cast<T*>(operand.data) + offset) = run;
  });
}

template <class C>
__device__ C load_element(const Operand& operand, std::int64_t i) {
  const std::int64_t offset = operand.strides.offset_of(i);
  C value{};
  visit_stored<C>(operand.dtype, [&](auto tag) {
    value = widen<C>(static_cast<const typename decltype(tag)::type*>(operand.data)[offset]);
  });
  return value;
}
template <class C>
__device__ void store_element(const Operand& operand, std::int64_t i, C value) {
  const std::int64_t offset = operand.strides.offset_of(i);
  visit_stored<C>(operand.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(operand.data)[offset] = narrow<T>(value);
  });
}

// What an elementwise kernel works on; fixed arrays, since kernels take their arguments by value.
template <int N>
struct Operands {
  Operand in[N > 0 ? N : 1];
  Operand out;
  std::int64_t count;
  bool runs;  // of all of them

  template <class... In>
  explicit Operands(const Tensor& result, const In&... inputs)
      : in{Operand(inputs)...}, out(result), count(result.numel()), runs(out.runs && !out.repeats) {
    for (int n = 0; n < N; ++n) runs = runs && in[n].runs;
  }
};

// out = f(in...) for the kElementwiseBlock elements from `begin` on, by one block: f takes N numbers of C, or the
// element's number without inputs.
template <class C, int N, class F>
__device__ void compute_elements(const Operands<N>& operands, std::int64_t begin, const F& f) {
  if (operands.runs && begin + kElementwiseBlock <= operands.count) {
    const std::int64_t first = begin + static_cast<std::int64_t>(threadIdx.x) * kRun;
    C in[N > 0 ? N : 1][kRun], out[kRun];
#pragma unroll
    for (int n = 0; n < N; ++n) load_run(operands.in[n], first, in[n]);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if constexpr (N == 0) out[i] = f(first + i);
      else if constexpr (N == 1) out[i] = f(in[0][i]);
      else if constexpr (N == 2) out[i] = f(in[0][i], in[1][i]);
      else out[i] = f(in[0][i], in[1][i], in[2][i]);
    }
    store_run(operands.out, first, out);
    return;
  }
  const std::int64_t end = std::min(operands.count, begin + kElementwiseBlock);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kElementwiseThreads) {
    C in[N > 0 ? N : 1];
#pragma unroll
    for (int n = 0; n < N; ++n) in[n] = load_element<C>(operands.in[n], i);
    C out;
    if constexpr (N == 0) out = f(i);
    else if constexpr (N == 1) out = f(in[0]);
    else if constexpr (N == 2) out = f(in[0], in[1]);
    else out = f(in[0], in[1], in[2]);
    store_element(operands.out, i, out);
  }
}

template <class C, int N, class F>
__global__ void elementwise_kernel(Operands<N> operands, F f) {
  compute_elements<C>(operands, static_cast<std::int64_t>(blockIdx.x) * kElementwiseBlock, f);
}

// A block for each kElementwiseBlock elements, but no more than `most`.
inline LaunchShape elementwise_shape(std::int64_t count, std::int64_t most = INT64_MAX) {
  return {grid_of(std::min(ceil_div(count, kElementwiseBlock), most)), kElementwiseThreads};
}

// Queues out = f(in...), element by element. The inputs have out's shape (strides of 0 where they repeat) and may be
// out.
template <class C, class F, class... In>
void run_elementwise(const char* name, const Tensor& out, F f, const In&... in) {
  if (out.numel() == 0) return;
  constexpr int kInputs = static_cast<int>(sizeof...(In));
  launch(name, elementwise_kernel<C, kInputs, F>, elementwise_shape(out.numel()), stream_of(out),
         Operands<kInputs>(out, in...), f);
}

}  // namespace keel::cuda
