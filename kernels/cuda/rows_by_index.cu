#include "keel/kernels/cuda/rows_by_index.h"

#include <bit>

#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/sort.h"
#include "keel/kernels/cuda/strides.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;

// A list of i32 or i64, each to be in [0, extent).
struct IndexList {
  const void* data;
  bool wide;
  std::int64_t extent;
  Fault* fault;
  FaultKind kind;

  IndexList(const Tensor& index, std::int64_t extent, FaultKind kind)
      : data(index.raw()),
        wide(index.dtype() == DType::i64),
        extent(extent),
        fault(index.context().api().fault()),
        kind(kind) {}

  __device__ std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(data)[i] : static_cast<const std::int32_t*>(data)[i];
  }
  __device__ bool holds(std::int64_t index) const { return index >= 0 && index < extent; }
  __device__ void report(std::int64_t i) const { raise_fault(fault, kind, i, (*this)[i], extent); }
};

struct RowCopy {
  const void* from;
  void* to;
  IndexList index;
  Shape shape;                            // (outer, picks, words)
  std::int64_t count;                     // of words
  std::int64_t outer_stride, row_stride;  // of `from`, in words
};

template <class Word>
__global__ void copy_rows_kernel(RowCopy copy) {
  constexpr int kWords = 4;  // of a thread, all on their way at once
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kWords) + threadIdx.x;
  Word words[kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    words[w] = Word{};
    const std::int64_t i = first + w * kThreads;
    if (i >= copy.count) continue;
    const Place at(copy.shape, i);
    const std::int64_t index = copy.index[at.row];
    if (copy.index.holds(index))
      words[w] =
          static_cast<const Word*>(copy.from)[at.outer * copy.outer_stride + index * copy.row_stride + at.column];
    else if (at.column == 0) copy.index.report(at.row);
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w)
    if (first + w * kThreads < copy.count) static_cast<Word*>(copy.to)[first + w * kThreads] = words[w];
}

constexpr int kLongRun = 64;  // from here on, a block sums a run
constexpr int kSlice = 64;    // columns that it sums

struct RowSums {
  const void* from;
  void* to;
  const int* keys;       // the indices in ascending order, those out of range as `extent` at the end
  const int* positions;  // where each of them was
  const int* begins;     // (extent + 1): where each index begins in `keys`
  Shape shape;           // (outer, extent, packs)
  std::int64_t outer, count, extent, inner;
  bool add, to_f32;
  bool skip_long;  // long runs are another kernel's
};

__global__ void make_keys_kernel(IndexList index, std::int64_t count, int* keys) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t value = index[i];
  const bool good = index.holds(value);
  if (!good) index.report(i);
  keys[i] = static_cast<int>(good ? value : index.extent);
}

__global__ void find_begins_kernel(const int* keys, std::int64_t count, std::int64_t extent, int* begins) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index > extent) return;
  std::int64_t low = 0, high = count;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (keys[middle] < index) low = middle + 1;
    else high = middle;
  }
  begins[index] = static_cast<int>(low);
}

// N elements that are one, or a whole Pack<T>, as fp32.
template <int N, class T>
__device__ void load_values(const T* from, float (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = widen(*from);
  } else {
    constexpr int kPack = Pack<T>::kSize;
#pragma unroll
    for (int p = 0; p < N; p += kPack) {
      const Pack<T> pack = load_pack(from + p);
#pragma unroll
      for (int i = 0; i < kPack; ++i) values[p + i] = widen(pack.values[i]);
    }
  }
}
template <int N, class T>
__device__ void store_values(T* to, const float (&values)[N]) {
  if constexpr (N == 1) {
    *to = narrow<T>(values[0]);
  } else {
    constexpr int kPack = Pack<T>::kSize;
#pragma unroll
    for (int p = 0; p < N; p += kPack) {
      Pack<T> pack;
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack.values[i] = narrow<T>(values[p + i]);
      store_pack(to + p, pack);
    }
  }
}

// A thread for N columns of each row of `to`.
template <class T, int N>
__global__ void sum_rows_kernel(RowSums sums) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= sums.outer * sums.extent * (sums.inner / N)) return;
  const Place at(sums.shape, item);
  const int begin = sums.begins[at.row], end = sums.begins[at.row + 1];
  if ((begin == end && sums.add) || (end - begin >= kLongRun && sums.skip_long)) return;
  float total[N] = {};
  const std::int64_t target = item * N;
  if (sums.add) {
    if (sums.to_f32) load_values<N>(static_cast<const float*>(sums.to) + target, total);
    else load_values<N>(static_cast<const T*>(sums.to) + target, total);
  }
  const T* const from = static_cast<const T*>(sums.from) + at.outer * sums.count * sums.inner + at.column * N;
#pragma unroll 4
  for (int i = begin; i < end; ++i) {
    float values[N];
    load_values<N>(from + sums.positions[i] * sums.inner, values);
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] += values[j];
  }
  if (sums.to_f32) store_values<N>(static_cast<float*>(sums.to) + target, total);
  else store_values<N>(static_cast<T*>(sums.to) + target, total);
}

// A block for kSlice columns of a long run: all threads fetch kLongRun rows at once, then one thread for each column
// adds them, while the next rows are on their way. Every kLongRun-th place in `keys` has blocks; those work that have
// the first such place of a long run.
template <class T, int N>
__global__ void sum_long_runs_kernel(RowSums sums) {
  constexpr int kPacks = kSlice / N;                                  // of a row
  constexpr int kLoads = kLongRun * kPacks / kThreads;                // of a thread
  constexpr int kPitch = kSlice + (kSlice / N < kWarp ? kPacks : 0);  // spreads the rows of a warp over the banks
  KEEL_SHARED(float, staged, kLongRun* kPitch);                       // column c at c % N * kPacks + c / N
  const std::int64_t places = ceil_div(sums.count, kLongRun), slices = ceil_div(sums.inner, kSlice);
  const std::int64_t place = blockIdx.x % places * kLongRun, slice = blockIdx.x / places % slices;
  const std::int64_t outer = blockIdx.x / places / slices;
  const int index = sums.keys[place];
  if (index == sums.extent) return;
  const int begin = sums.begins[index], end = sums.begins[index + 1];
  if (end - begin < kLongRun || place - begin >= kLongRun) return;

  const T* const from = static_cast<const T*>(sums.from) + outer * sums.count * sums.inner;
  const int thread = static_cast<int>(threadIdx.x);
  float held[kLoads][N];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int row = (thread + load * kThreads) / kPacks, pack = (thread + load * kThreads) % kPacks;
      const std::int64_t column = slice * kSlice + pack * N;
      if (first + row < end && column < sums.inner)
        load_values<N>(from + sums.positions[first + row] * sums.inner + column, held[load]);
    }
  };
  const int own = thread % kPacks * N + thread / kPacks;  // column of the slice
  const bool adds = thread < kSlice && slice * kSlice + own < sums.inner;
  const std::int64_t target = (outer * sums.extent + index) * sums.inner + slice * kSlice + own;
  float total = 0;
  if (adds && sums.add)
    total = sums.to_f32 ? static_cast<const float*>(sums.to)[target] : widen(static_cast<const T*>(sums.to)[target]);
  fetch(begin);
  for (int first = begin; first < end; first += kLongRun) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int row = (thread + load * kThreads) / kPacks, pack = (thread + load * kThreads) % kPacks;
      if (first + row < end && slice * kSlice + pack * N < sums.inner)
#pragma unroll
        for (int j = 0; j < N; ++j) staged[row * kPitch + j * kPacks + pack] = held[load][j];
    }
    __syncthreads();
    fetch(first + kLongRun);
    if (adds) {
      const int rows = end - first < kLongRun ? end - first : kLongRun;
#pragma unroll 8
      for (int row = 0; row < rows; ++row) total += staged[row * kPitch + thread];
    }
    __syncthreads();
  }
  if (!adds) return;
  if (sums.to_f32) static_cast<float*>(sums.to)[target] = total;
  else static_cast<T*>(sums.to)[target] = narrow<T>(total);
}

template <class T, int N>
void launch_sums(const char* name, RowSums& sums, cudaStream_t stream) {
  sums.shape = Shape(Dims{sums.outer, sums.extent, sums.inner / N});
  sums.skip_long = sums.inner >= kSlice / 4 && sums.count >= kLongRun;
  const auto blocks = static_cast<unsigned>(ceil_div(product({sums.outer, sums.extent, sums.inner / N}), kThreads));
  launch(name, sum_rows_kernel<T, N>, {blocks, kThreads}, stream, sums);
  if (!sums.skip_long) return;
  const std::int64_t places = ceil_div(sums.count, kLongRun), slices = ceil_div(sums.inner, kSlice);
  launch(name, sum_long_runs_kernel<T, N>, {static_cast<unsigned>(places * slices * sums.outer), kThreads}, stream,
         sums);
}

}  // namespace

void copy_rows(const char* name, const Tensor& from, const Tensor& index, const Tensor& to, FaultKind fault) {
  if (to.numel() == 0) return;
  const std::size_t size = size_of(to.dtype());
  const auto row_bytes = static_cast<std::size_t>(to.dim(2)) * size;
  const std::size_t row_stride = static_cast<std::size_t>(from.stride(1)) * size;
  const std::size_t outer_stride = static_cast<std::size_t>(from.stride(0)) * size;
  std::size_t word = 16;
  while ((reinterpret_cast<std::uintptr_t>(from.raw()) | reinterpret_cast<std::uintptr_t>(to.raw()) | row_bytes |
          row_stride | outer_stride) %
             word !=
         0)
    word /= 2;
  const auto in_words = [&](std::size_t bytes) { return static_cast<std::int64_t>(bytes / word); };
  const Dims shape = {to.dim(0), to.dim(1), in_words(row_bytes)};
  const RowCopy copy{from.raw(),          to.raw(),       IndexList(index, from.dim(1), fault),
                     Shape(shape),        product(shape), in_words(outer_stride),
                     in_words(row_stride)};
  const auto blocks = static_cast<unsigned>(ceil_div(copy.count, kThreads * 4));
  visit_word(word, [&](auto tag) {
    launch(name, copy_rows_kernel<typename decltype(tag)::type>, {blocks, kThreads}, stream_of(to), copy);
  });
}

void add_rows(const char* name, const Tensor& from, const Tensor& index, const Tensor& to, bool add, FaultKind fault) {
  if (to.numel() == 0 && index.numel() == 0) return;
  const Context& context = to.context();
  RowSums sums{};
  sums.outer = to.dim(0);
  sums.extent = to.dim(1);
  sums.inner = to.dim(2);
  sums.count = index.numel();
  KEEL_CHECK(sums.extent < INT32_MAX && sums.count < INT32_MAX, name, ": ", sums.count, " rows into ", sums.extent,
             " are too many for ", context.device());
  const cudaStream_t stream = stream_of(to);
  const Tensor keys = empty(context, {1, sums.count}, DType::i32, Purpose::workspace);
  if (sums.count > 0)
    launch(name, make_keys_kernel, {static_cast<unsigned>(ceil_div(sums.count, kThreads)), kThreads}, stream,
           IndexList(index, sums.extent, fault), sums.count, keys.data<int>());
  if (to.numel() == 0) return;
  const SortedRows sorted = sort_rows(keys, 0, std::bit_width(static_cast<std::uint64_t>(sums.extent)));
  const Tensor begins = empty(context, {sums.extent + 1}, DType::i32, Purpose::workspace);
  launch(name, find_begins_kernel, {static_cast<unsigned>(ceil_div(sums.extent + 1, kThreads)), kThreads}, stream,
         sorted.keys.data<int>(), sums.count, sums.extent, begins.data<int>());
  sums.from = from.numel() > 0 ? from.raw() : to.raw();  // no null to reckon with where nothing is read
  sums.to = to.raw();
  sums.keys = sorted.keys.data<int>();
  sums.positions = sorted.positions.data<int>();
  sums.begins = begins.data<int>();
  sums.add = add;
  sums.to_f32 = to.dtype() == DType::f32;
  visit_kernel_type(name, from.dtype(), from.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int kPack = Pack<T>::kSize;
    if (packs_fit(from.data<T>(), sums.inner) && packs_fit(static_cast<const T*>(sums.to), sums.inner))
      launch_sums<T, kPack>(name, sums, stream);
    else launch_sums<T, 1>(name, sums, stream);
  });
}

}  // namespace keel::cuda
