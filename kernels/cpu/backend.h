#pragma once
// The CPU backend, family by family: each function fills its entries of the table.

#include <string>

#include "keel/kernels/table.h"

namespace keel::cpu {

void add_elementwise(KernelTable& table);
void add_copy(KernelTable& table);  // copy, fill, where, accumulate, scale
void add_dropout(KernelTable& table);
void add_reduce(KernelTable& table);
void add_matmul(KernelTable& table);
void add_attention(KernelTable& table);
void add_gated(KernelTable& table);
void add_rotary(KernelTable& table);
void add_softmax(KernelTable& table);
void add_blocked_loss(KernelTable& table);
void add_cross_entropy(KernelTable& table);
void add_norm(KernelTable& table);
void add_embedding(KernelTable& table);
void add_select(KernelTable& table);
void add_combine(KernelTable& table);
void add_codec(KernelTable& table);  // also what makes narrow matrices orthonormal
void add_update(KernelTable& table);
void add_update_blocks(KernelTable& table);
void add_norms_of_updates(KernelTable& table);
void add_factors(KernelTable& table);

// keel's own matmul entry, which oneDNN's hands back to where it declines.
void multiply_plain(const MatmulArgs& args);
// What that entry computes with: "keel (AVX-512, bf16 dot products)".
std::string plain_backend(DType dtype);

// Takes the matmul entry over for the dtypes that oneDNN multiplies faster; see cpu/onednn_matmul.cpp.
// These three exist where oneDNN was built in.
void add_onednn(KernelTable& table);
void multiply_onednn(const MatmulArgs& args);
// Which library multiplies this dtype here, and why.
std::string onednn_backend(DType dtype);

// multiply_onednn, or null where it was not built in: for tests and benchmarks.
void (*onednn_entry())(const MatmulArgs& args);

}  // namespace keel::cpu
