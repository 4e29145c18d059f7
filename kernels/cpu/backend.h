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
void add_softmax(KernelTable& table);
void add_cross_entropy(KernelTable& table);
void add_norm(KernelTable& table);
void add_embedding(KernelTable& table);
void add_select(KernelTable& table);
void add_update(KernelTable& table);

// keel's own matmul entry, which the faster one hands back to where it declines.
void multiply_plain(const MatmulArgs& args);
// What that entry computes with: "keel (AVX-512, bf16 dot products)".
std::string plain_backend(DType dtype);

// Overwrites the matmul entry where oneDNN was built in; see cpu/onednn_matmul.cpp.
void add_onednn(KernelTable& table);
// Which library multiplies this dtype here, and why.
std::string onednn_backend(DType dtype);

}  // namespace keel::cpu
