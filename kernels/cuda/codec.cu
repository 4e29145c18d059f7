// Codecs: the bytes of the processor's, without a word to the host.
//
// int8 and int4: a warp for each block of numbers.

#include "keel/kernels/cuda/codec.h"

#include "keel/kernels/codec_formulas.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"

namespace keel::cuda {
namespace {

using namespace keel::codec;

using Rows = CodecRows;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

constexpr int kEach = Codec::kBlock / kWarp;  // numbers of a lane

// Calls f(part's numbers, part's payload, block, first number) in each warp that has a block.
template <class F>
__device__ void with_block(const Rows& rows, const F& f) {
  const std::int64_t blocks = ceil_div(rows.count, Codec::kBlock);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (at >= rows.parts * blocks) return;  // with all its lanes
  const std::int64_t part = at / blocks, block = at % blocks;
  f(rows.numbers + part * rows.count, rows.payload + part * rows.bytes, block,
    block * Codec::kBlock + threadIdx.x % kWarp);
}

// Reads the lane's numbers of the block, 0 past the last one, and writes the block's scale.
__device__ float read_block(const Rows& rows, const float* numbers, std::byte* payload, std::int64_t block,
                            std::int64_t first, float largest_multiple, float (&x)[kEach]) {
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    x[i] = first + i * kWarp < rows.count ? numbers[first + i * kWarp] : 0.0f;
    largest = std::max(largest, size_bits(x[i]));
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) largest = std::max(largest, exchange(largest, distance));
  const float scale = scale_of(largest, largest_multiple);
  if (threadIdx.x % kWarp == 0) put(payload, block, scale);
  return scale;
}

__global__ void encode_int8_kernel(Rows rows) {
  with_block(rows, [&](float* numbers, std::byte* payload, std::int64_t block, std::int64_t first) {
    float x[kEach];
    const float scale = read_block(rows, numbers, payload, block, first, kLargestInt8, x);
    std::int8_t* const multiples = multiples_of(payload, rows.bytes, rows.count);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (first + i * kWarp >= rows.count) continue;
      multiples[first + i * kWarp] = take_multiple(x[i], scale, kLargestInt8);
      numbers[first + i * kWarp] = x[i];
    }
  });
}

// A lane has both numbers of each of its pairs.
__global__ void encode_int4_kernel(Rows rows) {
  with_block(rows, [&](float* numbers, std::byte* payload, std::int64_t block, std::int64_t first) {
    float x[kEach];
    const float scale = read_block(rows, numbers, payload, block, first, kLargestInt4, x);
    std::byte* const pairs = pairs_of(payload, ceil_div(rows.count, Codec::kBlock), block);
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const std::int64_t lower = first + i * kWarp, upper = lower + kPairs;
      if (lower >= rows.count) continue;
      const std::int8_t of_lower = take_multiple(x[i], scale, kLargestInt4);
      const std::int8_t of_upper = take_multiple(x[i + kEach / 2], scale, kLargestInt4);
      pairs[threadIdx.x % kWarp + i * kWarp] = pair_of(of_lower, of_upper);
      numbers[lower] = x[i];
      if (upper < rows.count) numbers[upper] = x[i + kEach / 2];
    }
  });
}

__global__ void add_int4_kernel(Rows rows) {
  with_block(rows, [&](float* sums, std::byte* payload, std::int64_t block, std::int64_t first) {
    const auto scale = get<float>(payload, block);
    const std::byte* const pairs = pairs_of(payload, ceil_div(rows.count, Codec::kBlock), block);
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const std::int64_t lower = first + i * kWarp, upper = lower + kPairs;
      if (lower >= rows.count) continue;
      const std::byte pair = pairs[threadIdx.x % kWarp + i * kWarp];
      sums[lower] += scale * lower_of(pair);
      if (upper < rows.count) sums[upper] += scale * upper_of(pair);
    }
  });
}

__global__ void add_int8_kernel(Rows rows) {
  with_block(rows, [&](float* sums, std::byte* payload, std::int64_t block, std::int64_t first) {
    const auto scale = get<float>(payload, block);
    const std::int8_t* const multiples = multiples_of(payload, rows.bytes, rows.count);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (first + i * kWarp < rows.count)
        sums[first + i * kWarp] += scale * static_cast<float>(multiples[first + i * kWarp]);
  });
}

unsigned warps_for_blocks(const Rows& rows) {
  return grid_of(ceil_div(rows.parts * ceil_div(rows.count, Codec::kBlock), std::int64_t{kWarps}));
}

void encode(const CodecArgs& args) {
  if (args.numbers.numel() == 0) return;
  const Rows rows(args);
  switch (args.codec.kind) {
    case Codec::Kind::top_k: return encode_top_k(args);
    case Codec::Kind::top_k_2bit: return encode_top_k_2bit(args);
    case Codec::Kind::int8:
    case Codec::Kind::int4: break;
  }
  const auto kernel = args.codec.kind == Codec::Kind::int8 ? encode_int8_kernel : encode_int4_kernel;
  launch("encode", kernel, {warps_for_blocks(rows), kThreads}, stream_of(args.numbers), rows);
}

void decode_add(const CodecArgs& args) {
  if (args.numbers.numel() == 0) return;
  const Rows rows(args);
  switch (args.codec.kind) {
    case Codec::Kind::top_k: return add_top_k(args);
    case Codec::Kind::top_k_2bit: return add_top_k_2bit(args);
    case Codec::Kind::int8:
    case Codec::Kind::int4: break;
  }
  const auto kernel = args.codec.kind == Codec::Kind::int8 ? add_int8_kernel : add_int4_kernel;
  launch("decode_add", kernel, {warps_for_blocks(rows), kThreads}, stream_of(args.numbers), rows);
}

}  // namespace

void add_codec(KernelTable& table) {
  table.encode = encode;
  table.decode_add = decode_add;
}

}  // namespace keel::cuda
