// A radix sort from the lowest digit up. A pass counts the digits of each tile, sums the counts of a digit over the
// tiles before, and moves every key behind the equal ones that came before it: in its warp, its tile, and before.

#include "keel/kernels/cuda/sort.h"

#include <algorithm>
#include <utility>

#include "keel/kernels/cuda/device.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kSteps = 8;  // keys of a thread
constexpr int kTile = kThreads * kSteps;
static_assert(kDigits == kThreads, "a thread looks after one digit");

struct Pass {
  const unsigned* keys;
  const int* positions;  // null: 0, 1, 2...
  unsigned* sorted_keys;
  int* sorted_positions;
  int* counts;  // (rows, digits, tiles); by the second kernel: of the tiles before
  int* totals;  // (rows, digits)
  std::int64_t rows, count, tiles;
  int shift;

  __device__ unsigned digit(unsigned key) const { return key >> shift & (kDigits - 1); }
};

// A warp reads the keys of a tile at kSteps times kWarp places that follow one another.
__device__ inline std::int64_t place_of(std::int64_t tile, int step) {
  const std::int64_t warp = tile * kWarps + threadIdx.x / kWarp;
  return (warp * kSteps + step) * kWarp + threadIdx.x % kWarp;
}

__global__ void count_digits_kernel(Pass pass) {
  const std::int64_t row = blockIdx.x / pass.tiles, tile = blockIdx.x % pass.tiles;
  KEEL_SHARED(int, found, kDigits);
  found[threadIdx.x] = 0;
  __syncthreads();
  const unsigned* const keys = pass.keys + row * pass.count;
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t at = place_of(tile, step);
    if (at < pass.count) atomicAdd(found.data() + pass.digit(keys[at]), 1);
  }
  __syncthreads();
  pass.counts[(row * kDigits + threadIdx.x) * pass.tiles + tile] = found[threadIdx.x];
}

// A warp for each digit of each row.
__global__ void sum_tiles_kernel(Pass pass) {
  const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  int* const counts = pass.counts + line * pass.tiles;
  int total = 0;
  for (std::int64_t first = 0; first < pass.tiles; first += kWarp) {
    const bool inside = first + lane < pass.tiles;
    const int own = inside ? counts[first + lane] : 0;
    const int sum = sum_up_to_lane(own);
    if (inside) counts[first + lane] = total + sum - own;
    total += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (lane == 0) pass.totals[line] = total;
}

// The lanes of the warp whose digit is this one, among those with `valid`.
__device__ inline unsigned lanes_with(unsigned digit, bool valid) {
  unsigned lanes = __ballot_sync(kAllLanes, valid);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const unsigned set = __ballot_sync(kAllLanes, digit >> bit & 1u);
    lanes &= (digit >> bit & 1u) != 0 ? set : ~set;
  }
  return lanes;
}

__global__ void move_keys_kernel(Pass pass) {
  const std::int64_t row = blockIdx.x / pass.tiles, tile = blockIdx.x % pass.tiles;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  KEEL_SHARED(int, next, kWarps* kDigits);  // (warps, digits): how many so far; later: where the first one goes
  KEEL_SHARED(int, sums, kWarps);
  for (int w = 0; w < kWarps; ++w) next[w * kDigits + thread] = 0;
  const int total = pass.totals[row * kDigits + thread], up_to = sum_up_to_lane(total);
  if (lane == kWarp - 1) sums[warp] = up_to;
  __syncthreads();

  const unsigned* const keys = pass.keys + row * pass.count;
  unsigned held[kSteps];
  int rank[kSteps];  // among the equal digits of the warp
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t at = place_of(tile, step);
    const bool valid = at < pass.count;
    held[step] = valid ? keys[at] : 0;
    const unsigned digit = pass.digit(held[step]), peers = lanes_with(digit, valid);
    const int before = valid ? static_cast<int>(next[warp * kDigits + digit]) : 0;
    rank[step] = before + __popc(peers & ((1u << lane) - 1));
    __syncwarp();
    if (valid && rank[step] == before) next[warp * kDigits + digit] = before + __popc(peers);
    __syncwarp();
  }
  __syncthreads();

  int begin = pass.counts[(row * kDigits + thread) * pass.tiles + tile] + up_to - total;
  for (int w = 0; w < warp; ++w) begin += sums[w];
  for (int w = 0; w < kWarps; ++w) {
    const int own = next[w * kDigits + thread];
    next[w * kDigits + thread] = begin;
    begin += own;
  }
  __syncthreads();

#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t at = place_of(tile, step);
    if (at >= pass.count) continue;
    const std::int64_t to = row * pass.count + next[warp * kDigits + pass.digit(held[step])] + rank[step];
    pass.sorted_keys[to] = held[step];
    pass.sorted_positions[to] =
        pass.positions == nullptr ? static_cast<int>(at) : pass.positions[row * pass.count + at];
  }
}

unsigned* as_keys(const Tensor& keys) { return reinterpret_cast<unsigned*>(keys.data<std::int32_t>()); }

}  // namespace

SortedRows sort_rows(const Tensor& keys, int first_bit, int end_bit) {
  const Context& context = keys.context();
  const auto scratch = [&](const Dims& shape) { return empty(context, shape, DType::i32, Purpose::workspace); };
  Pass pass{};
  pass.rows = keys.dim(0);
  pass.count = keys.dim(1);
  pass.tiles = ceil_div(pass.count, kTile);
  KEEL_CHECK(pass.count < INT32_MAX, "sort: ", keys, " has rows of too many keys for ", context.device());
  SortedRows from{keys, {}}, to{scratch(keys.shape()), scratch(keys.shape())};
  if (keys.numel() == 0) return to;
  const Tensor counts = scratch({pass.rows, kDigits, pass.tiles}), totals = scratch({pass.rows, kDigits});
  pass.counts = counts.data<int>();
  pass.totals = totals.data<int>();

  const cudaStream_t stream = stream_of(keys);
  const auto tiles = static_cast<unsigned>(pass.rows * pass.tiles);
  const auto lines = static_cast<unsigned>(pass.rows * (kDigits / kWarps));
  for (pass.shift = first_bit; pass.shift == first_bit || pass.shift < end_bit; pass.shift += kDigitBits) {
    pass.keys = as_keys(from.keys);
    pass.positions = from.positions.defined() ? from.positions.data<int>() : nullptr;
    pass.sorted_keys = as_keys(to.keys);
    pass.sorted_positions = to.positions.data<int>();
    launch("sort: count", count_digits_kernel, {tiles, kThreads}, stream, pass);
    launch("sort: sum", sum_tiles_kernel, {lines, kThreads}, stream, pass);
    launch("sort: move", move_keys_kernel, {tiles, kThreads}, stream, pass);
    if (!from.positions.defined()) from.positions = scratch(keys.shape());
    std::swap(from, to);
  }
  return from;
}

}  // namespace keel::cuda
