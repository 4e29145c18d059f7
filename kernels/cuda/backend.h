#pragma once
// The CUDA backend, family by family: each function fills its entries of the table.
//
// Entries queue their kernels on the current stream of the tensors' context and return. They take f32, bf16 and f16;
// storage, copy and cast also take f64 and integers.

#include <string>

#include "keel/kernels/table.h"

namespace keel::cuda {

void add_attention(KernelTable& table);
void add_copy(KernelTable& table);  // copy, fill, where, accumulate, scale, arange
void add_blocked_loss(KernelTable& table);
void add_cross_entropy(KernelTable& table);
void add_dropout(KernelTable& table);
void add_elementwise(KernelTable& table);
void add_embedding(KernelTable& table);
void add_matmul(KernelTable& table);
void add_norm(KernelTable& table);
void add_norm_backward(KernelTable& table);
void add_gated(KernelTable& table);
void add_rotary(KernelTable& table);
void rotary_norm_backward(const RotaryBackwardArgs& args, const Tensor& partials);
void add_reduce(KernelTable& table);
void add_select(KernelTable& table);
void add_softmax(KernelTable& table);
void add_combine(KernelTable& table);
void add_codec(KernelTable& table);
void add_orthonormalise(KernelTable& table);  // and fill_empty_rows
void add_update(KernelTable& table);
void add_update_blocks(KernelTable& table);
void add_factors(KernelTable& table);

// What libraries do better, where this build has them; what they do not take goes to keel's own kernels, such as:
void add_cudnn_attention(KernelTable& table);
void attention(const AttentionArgs& args);
void attention_backward(const AttentionBackwardArgs& args);

// What computes this on the arguments' device; see kernels::attention_backend. The latter two where cuDNN was built in.
std::string attention_backend(const AttentionArgs& args);
std::string attention_backend(const AttentionBackwardArgs& args);
std::string cudnn_backend(const AttentionArgs& args);
std::string cudnn_backend(const AttentionBackwardArgs& args);

// What multiplies matrices of this dtype on the context's device, in a line.
std::string matmul_backend(const Context& context, DType dtype);

// Takes the matmul entry over; where cuBLASLt was built in. See cuda/cublaslt_matmul.cpp.
void add_cublaslt(KernelTable& table);
std::string cublaslt_backend(DType dtype);

// Everything above, and the libraries' entries where this build has them and `choice` allows.
void fill_table(KernelTable& table, KernelChoice choice);

}  // namespace keel::cuda
