#include "keel/kernels/attention.h"

#include <cmath>
#include <limits>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/table.h"
#if defined(KEEL_GPU) || defined(KEEL_EMULATED)
#include "keel/kernels/cuda/backend.h"
#endif

namespace keel::kernels {
namespace {

void check_kind(std::string_view name, const Tensor& x, const Tensor& like) {
  KEEL_CHECK(x.defined() && x.rank() == 4, "attention: ", name, " must be (batch, heads, time, head size), got ", x);
  KEEL_CHECK(x.dtype() == like.dtype() && is_floating(x.dtype()), "attention: ", name, " ", x,
             " must have the floating dtype of q, ", like);
  KEEL_CHECK(x.context() == like.context(), "attention: ", name, " ", x, " and q ", like,
             " belong to different contexts");
}

void check_shape(std::string_view name, const Tensor& x, const Tensor& like) {
  check_kind(name, x, like);
  KEEL_CHECK(x.shape() == like.shape(), "attention: ", name, " ", x, " must be shaped ", like.shape());
}

bool has_dense_rows(const Tensor& x) { return x.dim(3) <= 1 || x.stride(3) == 1 || x.numel() == 0; }

// What is read may lie in any way: kernels take it by dense rows.
void read_by_rows(Tensor& x) {
  if (!has_dense_rows(x)) x = contiguous(x);
}

void check_target(std::string_view name, const Tensor& x, const Tensor& like) {
  check_shape(name, x, like);
  KEEL_CHECK(has_dense_rows(x), "attention: the last dimension of ", name,
             " is written in place and must be dense, strides are ", x.strides());
}

void check_reserved(const AttentionArgs& args) {
  const auto refuse = [&](bool given, std::string_view option) {
    if (given)
      throw Error(keel::concat("attention: the option `", option, "` is not implemented on ", args.q.device()),
                  ErrorKind::unsupported);
  };
  refuse(args.bias.defined(), "bias");
  refuse(args.starts.defined(), "starts");
  refuse(args.window != 0, "window");
  refuse(args.dropout.probability != 0, "dropout");
}

DType lse_dtype(const Tensor& q) { return q.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void check_inputs(AttentionArgs& args) {
  const Tensor &q = args.q, &k = args.k;
  check_kind("q", q, q);
  check_kind("k", k, q);
  check_shape("v", args.v, k);
  KEEL_CHECK(k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3), "attention: batch and head size of q ", q, " and k ", k,
             " differ");
  KEEL_CHECK(q.dim(3) > 0, "attention: the heads of q ", q, " have no numbers");
  KEEL_CHECK(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, "attention: ", q.dim(1), " query heads cannot share ", k.dim(1),
             " key/value heads evenly");
  KEEL_CHECK(args.q_offset >= 0, "attention: q_offset must not be negative, got ", args.q_offset);
  KEEL_CHECK(args.scale >= 0 && std::isfinite(args.scale),
             "attention: scale must be positive, or 0 for 1 / sqrt(head size)");
  check_reserved(args);
  if (args.scale == 0) args.scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  if (args.lengths.defined()) {
    const Tensor& lengths = args.lengths;
    KEEL_CHECK(lengths.dtype() == DType::i64 && lengths.shape() == Dims{q.dim(0)}, "attention: lengths must be i64 (",
               q.dim(0), "), got ", lengths);
    KEEL_CHECK(lengths.context() == q.context(), "attention: lengths ", lengths, " and q ", q,
               " belong to different contexts");
    args.lengths = contiguous(lengths);
  }
  for (Tensor* read : {&args.q, &args.k, &args.v}) read_by_rows(*read);
}

void check_lse(const AttentionArgs& args) {
  const Tensor &q = args.q, &lse = args.lse;
  KEEL_CHECK(lse.dtype() == lse_dtype(q) && lse.shape() == Dims({q.dim(0), q.dim(1), q.dim(2)}) &&
                 lse.is_contiguous() && lse.context() == q.context(),
             "attention: lse must be dense ", lse_dtype(q), " (", q.dim(0), ", ", q.dim(1), ", ", q.dim(2), "), got ",
             lse);
}

void fill_gradient(std::string_view name, Tensor& gradient, const Tensor& like) {
  if (!gradient.defined()) gradient = empty_like(like);
  check_target(name, gradient, like);
}

// Checks the arguments and allocates what they leave out.
void complete(AttentionArgs& args) {
  check_inputs(args);
  const Tensor& q = args.q;
  if (!args.out.defined()) args.out = empty_like(q);
  check_target("out", args.out, q);
  if (!args.lse.defined()) args.lse = empty(q.context(), {q.dim(0), q.dim(1), q.dim(2)}, lse_dtype(q));
  check_lse(args);
}

void complete(AttentionBackwardArgs& args) {
  AttentionArgs& forward = args.forward;
  check_inputs(forward);
  KEEL_CHECK(forward.out.defined() && forward.lse.defined(),
             "attention backward needs `out` and `lse` of the forward call");
  check_shape("out", forward.out, forward.q);
  check_lse(forward);
  check_shape("grad_out", args.grad_out, forward.q);
  read_by_rows(forward.out);
  read_by_rows(args.grad_out);
  fill_gradient("grad_q", args.grad_q, forward.q);
  fill_gradient("grad_k", args.grad_k, forward.k);
  fill_gradient("grad_v", args.grad_v, forward.v);
}

// `q`: of the arguments.
template <class Args>
std::string backend_of(Args& args, const Tensor& q) {
  complete(args);
#if defined(KEEL_GPU) || defined(KEEL_EMULATED)
  if (q.device().type != DeviceType::cpu) return cuda::attention_backend(args);
#endif
  return keel::concat("keel: there are no others on ", q.device());
}

}  // namespace

AttentionArgs attention(AttentionArgs args) {
  complete(args);
  const Tensor& q = args.q;
  if (q.numel() == 0) return args;
  if (args.k.numel() == 0) {  // no query sees a key
    fill(args.out, 0);
    fill(args.lse, -std::numeric_limits<double>::infinity());
    return args;
  }
  run_kernel(q.context(), "attention", kernel_table(q.context()).attention, args);
  args.out.mark_written();
  args.lse.mark_written();
  return args;
}

AttentionBackwardArgs attention_backward(AttentionBackwardArgs args) {
  complete(args);
  const AttentionArgs& forward = args.forward;
  if (forward.q.numel() == 0 || forward.k.numel() == 0) {  // no query sees a key
    for (const Tensor& gradient : {args.grad_q, args.grad_k, args.grad_v}) fill(gradient, 0);
    return args;
  }
  const Context& context = forward.q.context();
  run_kernel(context, "attention backward", kernel_table(context).attention_backward, args);
  for (const Tensor& gradient : {args.grad_q, args.grad_k, args.grad_v}) gradient.mark_written();
  return args;
}

std::string attention_backend(AttentionArgs args) { return backend_of(args, args.q); }
std::string attention_backend(AttentionBackwardArgs args) { return backend_of(args, args.forward.q); }

}  // namespace keel::kernels
