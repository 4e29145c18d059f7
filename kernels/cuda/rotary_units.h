#pragma once
// How the CUDA kernels of rotary positions divide a head: into units of two runs of elements that hold whole pairs.

#include "keel/kernels/cuda/rows.h"

namespace keel::cuda {

// A tensor (batch, heads, time, size) whose last dimension is dense.
template <class T>
struct RotaryRows {
  T* data = nullptr;
  std::int64_t batch = 0, head = 0, time = 0;  // strides

  RotaryRows() = default;
  explicit RotaryRows(const Tensor& x)
      : data(x.data<std::remove_const_t<T>>()), batch(x.stride(0)), head(x.stride(1)), time(x.stride(2)) {}
  __device__ T* at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * batch + h * head + t * time;
  }
};

// Whether every head begins at a multiple of 16 bytes.
inline bool heads_are_aligned(const Tensor& x) {
  const auto bytes = static_cast<std::int64_t>(size_of(x.dtype()));
  bool aligned = reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;
  for (int d = 0; d < 3; ++d) aligned = aligned && (x.dim(d) <= 1 || x.stride(d) * bytes % 16 == 0);
  return aligned;
}

// The table and where each position of the batch stands in it.
struct RotaryTurns {
  const float *cosines, *sines;  // (known, pairs)
  const void* positions;         // null: first + t
  std::int64_t first, known, time;
  int pairs, size;
  bool wide, shared, halves, inverse;  // of positions: i64, and the same for all rows
  Fault* fault;

  RotaryTurns(const RotaryArgs& args, bool back)
      : cosines(args.table.cosines.data<float>()),
        sines(args.table.sines.data<float>()),
        positions(args.positions.defined() ? args.positions.raw() : nullptr),
        first(args.first),
        known(args.table.cosines.dim(0)),
        time(args.x.dim(2)),
        pairs(static_cast<int>(args.table.cosines.dim(1))),
        size(static_cast<int>(args.x.dim(3))),
        wide(args.positions.defined() && args.positions.dtype() == DType::i64),
        shared(args.positions.defined() && args.positions.dim(0) == 1),
        halves(args.table.pairs == RotaryPairs::halves),
        inverse(back),
        fault(args.x.context().api().fault()) {}

  // Row of the table for time t of row b. One that is not there is reported by one thread, and row 0 stands in for it.
  __device__ std::int64_t row_of(std::int64_t b, std::int64_t t) const {
    if (positions == nullptr) return first + t;
    const std::int64_t at = shared ? t : b * time + t;
    const std::int64_t row =
        wide ? static_cast<const std::int64_t*>(positions)[at] : static_cast<const std::int32_t*>(positions)[at];
    if (row >= 0 && row < known) return row;
    if (threadIdx.x == 0 && threadIdx.y == 0) raise_fault(fault, FaultKind::rotary_position, at, row, known);
    return 0;
  }
};

// Unit u of a head with runs of N elements: the runs at `first` and `second`, which hold pairs u N ... u N + N - 1, or,
// behind the pairs, elements that are not turned. There the second run may be missing.
template <int N>
struct RotaryUnit {
  int first, second, pair;
  bool turned, whole;

  __device__ RotaryUnit(const RotaryTurns& turns, int u) {
    pair = u * N;
    turned = pair < turns.pairs;
    const bool apart = turned && turns.halves;
    first = apart ? pair : 2 * pair;
    second = first + (apart ? turns.pairs : N);
    whole = second < turns.size;
  }
  template <class T>
  __device__ void load(const T* head, float (&a)[N], float (&b)[N]) const {
    load_values(head + first, a);
    if (whole) load_values(head + second, b);
    else
      for (float& value : b) value = 0;
  }
  template <class T>
  __device__ void store(T* head, const float (&a)[N], const float (&b)[N]) const {
    store_values(head + first, a);
    if (whole) store_values(head + second, b);
  }
};
// The units of a head; `pairs` is a multiple of N, and so is the rest.
template <int N>
__host__ __device__ int units_of(const RotaryTurns& turns) {
  return (turns.size + 2 * N - 1) / (2 * N);
}

// The angles of a unit.
template <int N>
struct UnitTurn {
  float cosines[N], sines[N];
  bool turned, apart;

  __device__ UnitTurn(const RotaryTurns& turns, const RotaryUnit<N>& unit, std::int64_t row)
      : turned(unit.turned), apart(turns.halves || N == 1) {
    if (!turned) return;
    const std::int64_t at = row * turns.pairs + unit.pair;
    load_angles(turns.cosines + at, cosines);
    load_angles(turns.sines + at, sines);
    if (turns.inverse)
      for (float& sine : sines) sine = -sine;
  }
  __device__ void operator()(float (&a)[N], float (&b)[N]) const {
    if (!turned) return;
    if (apart) {
      for (int i = 0; i < N; ++i) turn(a[i], b[i], i);
    } else {
      for (int i = 0; i < N / 2; ++i) {
        turn(a[2 * i], a[2 * i + 1], i);
        turn(b[2 * i], b[2 * i + 1], N / 2 + i);
      }
    }
  }

 private:
  __device__ void turn(float& a, float& b, int i) const {
    const float x = a, y = b;
    a = x * cosines[i] - y * sines[i];
    b = y * cosines[i] + x * sines[i];
  }
  // Rows of whole packs of pairs lie as packs in a dense table.
  __device__ static void load_angles(const float* from, float (&to)[N]) {
    if constexpr (N % 4 == 0) {
      for (int i = 0; i < N; i += 4) {
        const Pack<float> pack = load_pack(from + i);
        for (int j = 0; j < 4; ++j) to[i + j] = pack.values[j];
      }
    } else {
      for (int i = 0; i < N; ++i) to[i] = from[i];
    }
  }
};

// Whether heads may be divided into runs of whole packs of T.
template <class T>
bool packs_fit(const RotaryTurns& turns, std::initializer_list<const Tensor*> heads) {
  constexpr int kSize = Pack<T>::kSize;
  bool fit = turns.pairs % kSize == 0 && turns.size % kSize == 0;
  for (const float* angles : {turns.cosines, turns.sines})
    fit = fit && reinterpret_cast<std::uintptr_t>(angles) % 16 == 0;
  for (const Tensor* each : heads) fit = fit && heads_are_aligned(*each);
  return fit;
}

inline constexpr int kRotaryThreads = 256;

// Neighbouring lanes that share a head where its elements are summed: a power of two, a warp at most.
inline int lanes_of_head(int units) {
  int lanes = 1;
  while (lanes < units && lanes < kWarp) lanes *= 2;
  return lanes;
}
template <class T>
__device__ T sum_over_head(T value) {
  for (int distance = static_cast<int>(blockDim.x) / 2; distance > 0; distance /= 2) value += exchange(value, distance);
  return value;
}

}  // namespace keel::cuda
