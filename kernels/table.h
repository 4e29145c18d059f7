#pragma once
// The backend contract on one screen: what a device must offer, as plain function pointers.
//
// Each backend first fills the table with keel's own kernels; faster libraries then overwrite the
// entries that they support. An entry receives checked arguments and allocated outputs: shapes,
// dtypes and devices were verified by the public function of its family. A null entry is an honest
// "not implemented on this device".

#include <array>
#include <string_view>

#include "keel/kernels/attention.h"
#include "keel/kernels/blocked_loss.h"
#include "keel/kernels/codec.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/embedding.h"
#include "keel/kernels/gated.h"
#include "keel/kernels/loss.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/norm.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/rotary.h"
#include "keel/kernels/select.h"
#include "keel/kernels/softmax.h"
#include "keel/runtime/random.h"

namespace keel {

// Of keel/kernels/combine.h, factors.h, step_state.h and update.h; the last one includes every rule of an optimizer.
struct AdvanceArgs;
struct CombineArgs;
struct Factored;
struct SettleArgs;
struct StepArgs;
struct UpdateArgs;

struct KernelTable {
  UnaryTable unary;    // one forward and one backward for each functor of UnaryOps
  BinaryTable binary;  // likewise for BinaryOps

  void (*copy)(const Tensor& from, const Tensor& to) = nullptr;  // strided, any dtype to any dtype
  void (*fill)(const Tensor& out, double value) = nullptr;
  void (*where)(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) = nullptr;
  void (*accumulate)(const Tensor& from, const Tensor& into) = nullptr;  // into += from
  void (*scale)(const Tensor& x, double factor) = nullptr;               // x *= factor, in place
  void (*scale_by)(const Tensor& x, const Tensor& factor, const Tensor& divisor) = nullptr;
  void (*arange)(const Tensor& out, std::int64_t first) = nullptr;
  void (*dropout)(const DropoutArgs&) = nullptr;

  void (*reduce)(const ReduceArgs&) = nullptr;
  void (*matmul)(const MatmulArgs&) = nullptr;
  void (*softmax)(const SoftmaxArgs&) = nullptr;
  void (*softmax_backward)(const SoftmaxBackwardArgs&) = nullptr;
  void (*cross_entropy)(const CrossEntropyArgs&) = nullptr;
  void (*fold_logits)(const LogitsBlockArgs&) = nullptr;
  void (*settle_loss)(const SettleLossArgs&) = nullptr;
  void (*logits_gradient)(const LogitsBlockArgs&) = nullptr;
  void (*norm)(const NormArgs&) = nullptr;
  void (*norm_backward)(const NormBackwardArgs&) = nullptr;
  void (*embedding)(const EmbeddingArgs&) = nullptr;
  void (*embedding_backward)(const EmbeddingBackwardArgs&) = nullptr;
  void (*attention)(const AttentionArgs&) = nullptr;
  void (*attention_backward)(const AttentionBackwardArgs&) = nullptr;
  void (*rotary)(const RotaryArgs&) = nullptr;
  // partials: undefined, or (chunks, size) for the sums of grad_weight over chunks of positions.
  void (*rotary_norm_backward)(const RotaryBackwardArgs&, const Tensor& partials) = nullptr;
  void (*gated)(const GatedArgs&) = nullptr;
  void (*gated_backward)(const GatedBackwardArgs&) = nullptr;
  void (*gather)(const GatherArgs&) = nullptr;
  void (*index_select)(const IndexSelectArgs&) = nullptr;
  void (*index_add)(const IndexSelectArgs&) = nullptr;  // the derivative of index_select
  void (*top_k)(const TopKArgs&) = nullptr;

  void (*combine)(const CombineArgs&) = nullptr;
  void (*encode)(const CodecArgs&) = nullptr;
  void (*decode_add)(const CodecArgs&) = nullptr;
  void (*orthonormalise)(const Tensor& x) = nullptr;
  void (*fill_empty_rows)(const Tensor& x, PhiloxKey key) = nullptr;

  void (*update)(const UpdateArgs&) = nullptr;
  void (*update_blocks)(const UpdateArgs&) = nullptr;  // states in 8 bits
  void (*advance_shared)(const AdvanceArgs&) = nullptr;
  void (*measure_norms)(const UpdateArgs&, const Tensor& squares) = nullptr;
  void (*sum_factors)(const Tensor& gradient, std::int64_t begin, const Factored& shape, const Tensor& step,
                      const Tensor& sums) = nullptr;
  void (*settle_factors)(const SettleArgs&) = nullptr;
  void (*expand_factors)(const Tensor& factors, const Factored& shape, std::int64_t begin,
                         const Tensor& root) = nullptr;
  void (*add_squares)(const Tensor& x, const Tensor& state, std::int64_t first) = nullptr;
  void (*clip_values)(const Tensor& x, const Tensor& state, double limit) = nullptr;
  void (*add_noted)(const Tensor& noted, const Tensor& state, std::int64_t first) = nullptr;
  void (*add_tokens)(const Tensor& state, double tokens) = nullptr;
  void (*decide_step)(const StepArgs&) = nullptr;
};

// The table of this context's device, built on first use according to its KernelChoice.
const KernelTable& kernel_table(const Context& context);

// Calls an entry, or says that this device does not have it.
template <class... Params, class... Args>
auto run_kernel(const Context& context, std::string_view name, auto(*entry)(Params...), const Args&... args) {
  if (entry == nullptr) throw Error(concat(name, " is not implemented on ", context.device()), ErrorKind::unsupported);
  return entry(args...);
}

}  // namespace keel
