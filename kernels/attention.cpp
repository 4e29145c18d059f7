#include "keel/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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

DType lse_dtype(const Tensor& q) { return q.dtype() == DType::f64 ? DType::f64 : DType::f32; }

// A number for each sample; returns it dense.
Tensor checked_by_sample(std::string_view name, const Tensor& x, const Tensor& q) {
  KEEL_CHECK(x.dtype() == DType::i64 && x.shape() == Dims{q.dim(0)}, "attention: ", name, " must be i64 (", q.dim(0),
             "), got ", x);
  KEEL_CHECK(x.context() == q.context(), "attention: ", name, " ", x, " and q ", q, " belong to different contexts");
  return contiguous(x);
}

void check_bias(AttentionArgs& args) {
  const Tensor &q = args.q, &bias = args.bias;
  const std::int64_t batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), keys = args.k.dim(2);
  const auto fits = [&](int dim, std::int64_t extent) { return bias.dim(dim) == 1 || bias.dim(dim) == extent; };
  KEEL_CHECK(bias.rank() == 4 && fits(0, batch) && fits(1, heads) && fits(2, queries) && bias.dim(3) == keys,
             "attention: bias must be (1 or ", batch, ", 1 or ", heads, ", 1 or ", queries, ", ", keys, "), got ",
             bias);
  KEEL_CHECK(bias.dtype() == q.dtype() || bias.dtype() == lse_dtype(q), "attention: bias must be ", q.dtype(), " or ",
             lse_dtype(q), ", got ", bias);
  KEEL_CHECK(bias.context() == q.context(), "attention: bias ", bias, " and q ", q, " belong to different contexts");
  read_by_rows(args.bias);
}

void check_dropout(AttentionArgs& args) {
  AttentionDropout& dropout = args.dropout;
  KEEL_CHECK(dropout.probability >= 0 && dropout.probability < 1,
             "attention: a dropout probability lies in [0, 1), got ", dropout.probability);
  if (dropout.probability == 0) return;
  KEEL_CHECK(dropout.sample_ids.defined(), "attention: dropout needs `sample_ids`, i64 (", args.q.dim(0), ")");
  dropout.sample_ids = checked_by_sample("sample_ids", dropout.sample_ids, args.q);
  const std::int64_t positions = std::max(args.k.dim(2), args.q_offset + args.q.dim(2));
  KEEL_CHECK(dropout.position >= 0 && dropout.position + positions <= INT32_MAX,
             "attention: dropout counts positions in 31 bits, got position ", dropout.position, " and ", positions,
             " from there on");
}

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
  KEEL_CHECK(args.window >= 0, "attention: window must not be negative, got ", args.window);
  if (args.scale == 0) args.scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  if (args.lengths.defined()) args.lengths = checked_by_sample("lengths", args.lengths, q);
  if (args.starts.defined()) args.starts = checked_by_sample("starts", args.starts, q);
  if (args.bias.defined()) check_bias(args);
  check_dropout(args);
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

void complete_grad_bias(AttentionBackwardArgs& args) {
  const Tensor &q = args.forward.q, &bias = args.forward.bias;
  KEEL_CHECK(bias.defined(), "attention backward: the gradient of a bias needs `bias` of the forward call");
  if (!args.grad_bias.defined()) args.grad_bias = empty(q.context(), bias.shape(), lse_dtype(q));
  const Tensor& gradient = args.grad_bias;
  KEEL_CHECK(gradient.dtype() == lse_dtype(q) && gradient.shape() == bias.shape() && gradient.is_contiguous() &&
                 gradient.context() == q.context(),
             "attention: grad_bias must be dense ", lse_dtype(q), " ", bias.shape(), ", got ", gradient);
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
  if (args.needs_grad_bias) complete_grad_bias(args);
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
  std::vector<Tensor> gradients = {args.grad_q, args.grad_k, args.grad_v};
  if (args.needs_grad_bias) gradients.push_back(args.grad_bias);
  if (forward.q.numel() == 0 || forward.k.numel() == 0) {  // no query sees a key
    for (const Tensor& gradient : gradients) fill(gradient, 0);
    return args;
  }
  const Context& context = forward.q.context();
  run_kernel(context, "attention backward", kernel_table(context).attention_backward, args);
  for (const Tensor& gradient : gradients) gradient.mark_written();
  return args;
}

std::string attention_backend(AttentionArgs args) { return backend_of(args, args.q); }
std::string attention_backend(AttentionBackwardArgs args) { return backend_of(args, args.forward.q); }

}  // namespace keel::kernels
