#pragma once
// What all CUDA attention kernels are told: extents, masks, where a head lies, and which part of the work a block has.

#include <algorithm>

#include "keel/kernels/attention.h"
#include "keel/kernels/cuda/device.h"

namespace keel::cuda {

inline constexpr int kMostHeadSize = 256;

struct AttentionShape {
  static constexpr int kUnbounded = -(1 << 30);  // there are fewer queries and keys

  int batch, heads, kv_heads, queries, keys, size;
  int group;   // query heads that share a key/value head
  int ahead;   // query i sees no key past i + ahead; `keys` where nothing is hidden
  int behind;  // nor one before i + behind; kUnbounded where nothing is hidden
  const std::int64_t *lengths, *starts;
  float scale;

  explicit AttentionShape(const AttentionArgs& args)
      : batch(static_cast<int>(args.q.dim(0))),
        heads(static_cast<int>(args.q.dim(1))),
        kv_heads(static_cast<int>(args.k.dim(1))),
        queries(static_cast<int>(args.q.dim(2))),
        keys(static_cast<int>(args.k.dim(2))),
        size(static_cast<int>(args.q.dim(3))),
        group(heads / kv_heads),
        ahead(keys),
        behind(kUnbounded),
        lengths(args.lengths.defined() ? args.lengths.data<std::int64_t>() : nullptr),
        starts(args.starts.defined() ? args.starts.data<std::int64_t>() : nullptr),
        scale(static_cast<float>(args.scale)) {
    const std::int64_t most = keys, offset = std::min(args.q_offset, most);
    if (args.causal) ahead = static_cast<int>(offset);
    else if (args.window != 0) ahead = static_cast<int>(std::min(most, offset + std::min(args.window, most + 1) - 1));
    if (args.window != 0)
      behind = static_cast<int>(std::clamp<std::int64_t>(args.q_offset - args.window + 1, kUnbounded, most));
  }

  // The first key that is padding.
  __device__ int key_limit(int b) const {
    if (lengths == nullptr) return keys;
    const std::int64_t length = lengths[b];
    return length < 0 ? 0 : length < keys ? static_cast<int>(length) : keys;
  }
  // The first key that is no padding; `limit` where none is.
  __device__ int key_start(int b, int limit) const {
    if (starts == nullptr) return 0;
    const std::int64_t start = starts[b];
    return start < 0 ? 0 : start < limit ? static_cast<int>(start) : limit;
  }
  // Query i sees the keys [begin(start, i), visible(limit, i)), where the former is less. Both also hold where keys and
  // queries are counted from a later key on, the limit and the start among them.
  __device__ int visible(int limit, int i) const {
    const int end = i + ahead + 1;
    return end < limit ? end : limit;
  }
  __device__ int begin(int start, int i) const { return i + behind > start ? i + behind : start; }
  // Queries [first_query(j), end_query(j)) see key j, were it no padding; none where the former is not less.
  __device__ int first_query(int j) const { return j < ahead ? 0 : j - ahead; }
  __device__ int end_query(int j) const { return j - behind + 1 < queries ? j - behind + 1 : queries; }
  // Where the numbers of one row (lse and the like) lie.
  __device__ std::int64_t row(int b, int head, int query) const {
    return (static_cast<std::int64_t>(b) * heads + head) * queries + query;
  }
};

// A (batch, heads, time, size) tensor with a dense last dimension.
struct Heads {
  std::byte* data;
  DType dtype;
  int size;
  std::int64_t batch_stride, head_stride, time_stride;  // in elements

  explicit Heads(const Tensor& x)
      : data(x.raw()),
        dtype(x.dtype()),
        size(static_cast<int>(x.dim(3))),
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

// On tensor cores: bf16 and f16, head sizes from 32 to 128 that are multiples of 8, rows that begin at multiples of 16
// bytes.
bool tensor_cores_take(const AttentionArgs& args);
void attention_on_tensor_cores(const AttentionArgs& args);
bool tensor_cores_take(const AttentionBackwardArgs& args);
void attention_backward_on_tensor_cores(const AttentionBackwardArgs& args, const QueryStats* stats);

// args.grad_bias alone, in fp32 arithmetic and for all that the others take.
void attention_grad_bias(const AttentionBackwardArgs& args, const QueryStats* stats);

}  // namespace keel::cuda
