#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {
namespace {

// `forward`: the arguments, or a part of them.
template <class Args>
std::string attention_backend_of([[maybe_unused]] const Args& args, const AttentionArgs& forward) {
  if (forward.q.context().kernel_choice() == KernelChoice::plain) return "keel: kernels=plain";
#ifdef KEEL_HAVE_CUDNN
  return cudnn_backend(args);
#else
  return "keel: built without cuDNN";
#endif
}

}  // namespace

std::string attention_backend(const AttentionArgs& args) { return attention_backend_of(args, args); }
std::string attention_backend(const AttentionBackwardArgs& args) { return attention_backend_of(args, args.forward); }

void fill_table(KernelTable& table, [[maybe_unused]] KernelChoice choice) {
  add_elementwise(table);
  add_attention(table);
  add_copy(table);
  add_embedding(table);
  add_gated(table);
  add_rotary(table);
  add_select(table);
  add_combine(table);
  add_codec(table);
  add_orthonormalise(table);
  add_update(table);
  add_update_blocks(table);
  add_factors(table);
  add_matmul(table);
  add_reduce(table);
  add_softmax(table);
  add_cross_entropy(table);
  add_blocked_loss(table);
  add_norm(table);
  add_norm_backward(table);
  add_dropout(table);
#ifdef KEEL_HAVE_CUBLASLT
  if (choice == KernelChoice::automatic) add_cublaslt(table);
#endif
#ifdef KEEL_HAVE_CUDNN
  if (choice == KernelChoice::automatic) add_cudnn_attention(table);
#endif
}

}  // namespace keel::cuda
