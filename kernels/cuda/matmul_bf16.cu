// Tensor-core products of bf16: a file of its own, so that it compiles beside the other dtype's.

#include "keel/kernels/cuda/matmul_tensor.h"

template void keel::cuda::launch_tensor_cores<keel::bf16>(const Product&, MatmulTile, cudaStream_t);
