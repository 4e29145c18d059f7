#pragma once
// What a library's attention needs around it, so that padding comes out as keel/kernels/attention.h says.

#include "keel/kernels/attention.h"

namespace keel::cuda {

// lengths, clamped to the keys, and the number of queries, of each sequence; both i32 (batch).
void write_sequence_lengths(const AttentionArgs& args, const Tensor& queries, const Tensor& keys);

// Zeros in the rows of sequences whose queries see no key, and -infinity in their lse.
void clear_blind_queries(const AttentionArgs& args, const Tensor& x, const Tensor& lse = {});
// Zeros in the rows of padded keys.
void clear_padded_keys(const AttentionArgs& args, const Tensor& x);

}  // namespace keel::cuda
