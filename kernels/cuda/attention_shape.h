#pragma once
// What all CUDA attention kernels are told: extents, masks, where a head lies, and which part of the work a block has.

#include "keel/kernels/attention.h"
#include "keel/kernels/cuda/device.h"

namespace keel::cuda {

inline constexpr int kMostHeadSize = 256;

struct AttentionShape {
  int batch, heads, kv_heads, queries, keys, size;
  int group;     // query heads that share a key/value head
  int q_offset;  // query i sees no key past i + q_offset; `keys` where nothing is hidden
  const std::int64_t* lengths;
  float scale;

  explicit AttentionShape(const AttentionArgs& args)
      : batch(static_cast<int>(args.q.dim(0))),
        heads(static_cast<int>(args.q.dim(1))),
        kv_heads(static_cast<int>(args.k.dim(1))),
        queries(static_cast<int>(args.q.dim(2))),
        keys(static_cast<int>(args.k.dim(2))),
        size(static_cast<int>(args.q.dim(3))),
        group(heads / kv_heads),
        q_offset(args.causal && args.q_offset < keys ? static_cast<int>(args.q_offset) : keys),
        lengths(args.lengths.defined() ? args.lengths.data<std::int64_t>() : nullptr),
        scale(static_cast<float>(args.scale)) {}

  // The first key that is padding.
  __device__ int key_limit(int b) const {
    if (lengths == nullptr) return keys;
    const std::int64_t length = lengths[b];
    return length < 0 ? 0 : length < keys ? static_cast<int>(length) : keys;
  }
  // Query i sees the keys [0, visible(limit, i)).
  __device__ int visible(int limit, int i) const {
    const int end = i + q_offset + 1;
    return end < limit ? end : limit;
  }
  // The first query that sees key j, were it no padding; `queries` or more where none does.
  __device__ int first_query(int j) const { return j < q_offset ? 0 : j - q_offset; }
  // Where the numbers of one row (lse and the like) lie.
  __device__ std::int64_t row(int b, int head, int query) const {
    return (static_cast<std::int64_t>(b) * heads + head) * queries + query;
  }
};

// A (batch, heads, time, size) tensor with a dense last dimension.
struct Heads {
  std::byte* data;
  DType dtype;
  std::int64_t batch_stride, head_stride, time_stride;  // in elements

  explicit Heads(const Tensor& x)
      : data(x.raw()),
        dtype(x.dtype()),
        batch_stride(x.stride(0)),
        head_stride(x.stride(1)),
        time_stride(x.stride(2)) {}

  // Whether every row begins at a multiple of `elements` elements.
  bool aligned(const Tensor& x, int elements) const {
    if (reinterpret_cast<std::uintptr_t>(data) % (static_cast<unsigned>(elements) * size_of(dtype)) != 0) return false;
    for (int d = 0; d < 3; ++d)
      if (x.dim(d) > 1 && x.stride(d) % elements != 0) return false;
    return true;
  }
  __device__ std::int64_t at(int b, int head) const { return b * batch_stride + head * head_stride; }
};

// The work of one block of threads: a tile of rows of one head.
struct AttentionTile {
  int tile, head, b;

  // Blocks are numbered tile by tile, then head by head, so that those which share keys run together.
  __device__ AttentionTile(int tiles, int heads) {
    const int head_of_all = static_cast<int>(blockIdx.x) / tiles;
    tile = static_cast<int>(blockIdx.x) % tiles;
    head = head_of_all % heads;
    b = head_of_all / heads;
  }
};

// What the backward kernels know of a query: its log-sum-exp, and delta, the sum of grad_out * out over the head size,
// which is subtracted from grad_out v^T in the derivative of a softmax. Heads are padded with queries whose weights are
// all zero.
struct QueryStats {
  float lse, delta;
};
inline constexpr int kStatsPadding = 128;  // queries of a head are a multiple of this
KEEL_HD inline int padded_queries(const AttentionShape& shape) {
  return (shape.queries + kStatsPadding - 1) / kStatsPadding * kStatsPadding;
}
__device__ inline std::int64_t stats_of(const AttentionShape& shape, int b, int head) {
  return (static_cast<std::int64_t>(b) * shape.heads + head) * padded_queries(shape);
}

// Throws where no kernel takes the dtype, the head size or the lengths.
inline void check_attention(std::string_view op, const Tensor& q, std::int64_t keys) {
  visit_kernel_type(op, q.dtype(), q.device(), [](auto) {});
  if (q.dim(3) > kMostHeadSize)
    throw Error(concat(op, " with head size ", q.dim(3), " is not implemented on ", q.device(), "; it takes up to ",
                       kMostHeadSize),
                ErrorKind::unsupported);
  KEEL_CHECK(q.dim(2) + keys < std::int64_t{1} << 30, op, ": ", q.dim(2), " queries and ", keys, " keys are too many");
}

// On tensor cores: bf16 and f16, head sizes 64 and 128, rows that begin at multiples of 16 bytes.
bool tensor_cores_take(const AttentionArgs& args);
void attention_on_tensor_cores(const AttentionArgs& args);
bool tensor_cores_take(const AttentionBackwardArgs& args);
void attention_backward_on_tensor_cores(const AttentionBackwardArgs& args, const QueryStats* stats);

}  // namespace keel::cuda
