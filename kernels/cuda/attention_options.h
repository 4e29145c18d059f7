#pragma once
// Bias and dropout of attention, as CUDA kernels see them. Masks are those of attention_keeps().

#include "keel/kernels/cuda/attention_shape.h"

namespace keel::cuda {

// The bias of one head.
struct HeadBias {
  const std::byte* data;
  std::int64_t query_stride, key_stride;  // in elements
  int last_query, last_key;

  // Rows and keys past the end have the numbers of the last.
  template <class T>
  __device__ float at(int query, int key) const {
    query = query < last_query ? query : last_query;
    key = key < last_key ? key : last_key;
    return widen(reinterpret_cast<const T*>(data)[query * query_stride + key * key_stride]);
  }
};

struct AttentionBias {
  const std::byte* data = nullptr;  // none where null
  DType dtype = DType::f32;
  std::int64_t strides[4] = {};  // 0 where the bias is one for all
  int last_query = 0, last_key = 0;

  explicit AttentionBias(const AttentionArgs& args)
      : last_query(static_cast<int>(args.q.dim(2)) - 1), last_key(static_cast<int>(args.k.dim(2)) - 1) {
    if (!args.bias.defined()) return;
    data = args.bias.raw();
    dtype = args.bias.dtype();
    for (int d = 0; d < 4; ++d) strides[d] = args.bias.dim(d) == 1 ? 0 : args.bias.stride(d);
  }
  __device__ HeadBias of(int b, int head) const {
    return {data + (b * strides[0] + head * strides[1]) * size_of_element(), strides[2], strides[3], last_query,
            last_key};
  }
  __device__ int size_of_element() const { return dtype == DType::f32 ? 4 : 2; }
};

// The dropout of one head.
struct HeadDropout {
  PhiloxKey key;
  std::uint64_t sample;
  std::uint32_t first_query, first_key;  // positions of query 0 and key 0
  std::uint32_t threshold;

  __device__ unsigned keeps_block(std::uint32_t query, std::uint32_t block) const {
    const PhiloxWords words = attention_dropout_words(key, sample, query, block);
    unsigned kept = 0;
#pragma unroll
    for (unsigned n = 0; n < 8; ++n) kept |= ((words[n / 2] >> 16 * (n % 2) & 0xffff) >= threshold ? 1u : 0u) << n;
    return kept;
  }
  // Which weights of a query with the eight keys from `key_number` on are kept: a bit each.
  __device__ unsigned keeps(int query, int key_number) const {
    const std::uint32_t row = first_query + static_cast<std::uint32_t>(query);
    const std::uint32_t column = first_key + static_cast<std::uint32_t>(key_number), shift = column % 8;
    unsigned kept = keeps_block(row, column / 8);
    if (shift != 0) kept = (kept >> shift | keeps_block(row, column / 8 + 1) << (8 - shift)) & 0xff;
    return kept;
  }
};

struct DropoutOfAttention {
  const std::int64_t* samples = nullptr;  // none where null
  PhiloxKey key = {};
  std::uint32_t first_query = 0, first_key = 0, threshold = 0;
  float factor = 1;  // of weights that are kept

  explicit DropoutOfAttention(const AttentionArgs& args) {
    const AttentionDropout& dropout = args.dropout;
    if (dropout.probability == 0) return;
    samples = dropout.sample_ids.data<std::int64_t>();
    key = key_of(dropout.key);
    first_key = static_cast<std::uint32_t>(dropout.position);
    first_query = static_cast<std::uint32_t>(dropout.position + args.q_offset);
    threshold = attention_dropout_threshold(dropout.probability);
    factor = static_cast<float>(0x1p16 / (0x1p16 - threshold));
  }
  __device__ HeadDropout of(int b, int head) const {
    return {attention_dropout_key(key, static_cast<std::uint32_t>(head)), static_cast<std::uint64_t>(samples[b]),
            first_query, first_key, threshold};
  }
};

struct AttentionOptions {
  AttentionBias bias;
  DropoutOfAttention dropout;

  explicit AttentionOptions(const AttentionArgs& args) : bias(args), dropout(args) {}
  // Whether kernels must look at them; without, others run, which know of none.
  bool any() const { return bias.data != nullptr || dropout.samples != nullptr; }
};

}  // namespace keel::cuda
