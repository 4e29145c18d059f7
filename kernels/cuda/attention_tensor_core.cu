#include "keel/kernels/cuda/attention_shape.h"
namespace keel::cuda {  // STUB
bool tensor_cores_take(const AttentionArgs&) { return false; }
void attention_on_tensor_cores(const AttentionArgs&) {}
bool tensor_cores_take(const AttentionBackwardArgs&) { return false; }
void attention_backward_on_tensor_cores(const AttentionBackwardArgs&, const Tensor&) {}
}  // namespace keel::cuda
