#include "keel/kernels/rotary.h"

#include <algorithm>

#include "keel/kernels/checks.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

constexpr const char* kRotary = "rotary";

bool has_dense_heads(const Tensor& x) { return x.dim(-1) <= 1 || x.stride(-1) == 1; }
Tensor with_dense_heads(const Tensor& x) { return has_dense_heads(x) ? x : contiguous(x); }

void check_rotary_heads(const char* role, const Tensor& x) {
  check_floating(kRotary, role, x);
  KEEL_CHECK(x.rank() == 4, kRotary, ": ", role, " must be (batch, heads, time, size), got ", x);
}

// Dense as (batch, time, heads, size), where the next product reads it.
Tensor heads_like(const Tensor& x) {
  return empty(x.context(), {x.dim(0), x.dim(2), x.dim(1), x.dim(3)}, x.dtype()).transpose(1, 2);
}

void place_heads(const char* role, Tensor& out, const Tensor& x) {
  if (!out.defined()) out = heads_like(x);
  check_tensor(kRotary, role, out, x.shape(), x.dtype(), x.context());
  KEEL_CHECK(has_dense_heads(out), kRotary, ": ", role, " ", out,
             " is written in place, so that its last dimension must ", "be dense, but it has strides ", out.strides());
}

void check_rotary_table(const RotaryTable& table, const Tensor& x) {
  check_defined(kRotary, "the table of cosines", table.cosines);
  KEEL_CHECK(table.cosines.rank() == 2 && table.cosines.dtype() == DType::f32, kRotary,
             ": the table of cosines must be f32 (positions, rotated / 2), got ", table.cosines);
  for (const auto& [role, part] : {std::pair{"cosines", table.cosines}, std::pair{"sines", table.sines}}) {
    check_tensor(kRotary, role, part, table.cosines.shape(), DType::f32, x.context());
    KEEL_CHECK(part.is_contiguous(), kRotary, ": the table of ", role, " must be dense, but has strides ",
               part.strides());
  }
  KEEL_CHECK(2 * table.cosines.dim(1) <= x.dim(3), kRotary, ": the table turns ", 2 * table.cosines.dim(1),
             " elements of a head, and the heads of ", x, " have ", x.dim(3));
}

// The positions as a dense (batch or 1, time), or none with a range that fits the table.
void check_positions(RotaryArgs& args, const Tensor& x) {
  const std::int64_t batch = x.dim(0), time = x.dim(2), known = args.table.cosines.dim(0);
  if (!args.positions.defined()) {
    KEEL_CHECK(args.first >= 0 && (x.numel() == 0 || args.first + time <= known), kRotary, ": positions [", args.first,
               ", ", args.first + time, ") are not all in a table of ", known, "; make it longer");
    return;
  }
  const Tensor& given = args.positions;
  check_context(kRotary, "positions", given, x.context());
  const bool fits = given.shape() == Dims{time} || given.shape() == Dims{1, time} || given.shape() == Dims{batch, time};
  KEEL_CHECK(fits && (given.dtype() == DType::i32 || given.dtype() == DType::i64), kRotary,
             ": positions must be i32 or i64 [", time, "] or ", Dims{batch, time}, ", got ", given);
  args.positions = contiguous(given.rank() == 1 ? given.unsqueeze(0) : given);
}

void check_head_norm(RotaryArgs& args, const Tensor& x) {
  check_tensor(kRotary, "weight", args.weight, {x.dim(3)}, x.dtype(), x.context());
  KEEL_CHECK(!args.inverse, kRotary, ": a rotation back has no norm; rotary_backward() has its derivative");
  args.weight = contiguous(args.weight);
}

Dims shape_of_rstd(const Tensor& x) { return {x.dim(0), x.dim(1), x.dim(2)}; }
DType dtype_of_rstd(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void check_rstd(const Tensor& rstd, const Tensor& x) {
  check_tensor(kRotary, "rstd", rstd, shape_of_rstd(x), dtype_of_rstd(x), x.context());
  check_dense(kRotary, "rstd", rstd);
}

// Sums over rows are taken chunk by chunk of positions; so many that all cores of a device have some.
constexpr std::int64_t kMostChunks = 256;

}  // namespace

RotaryArgs rotary(RotaryArgs args) {
  check_rotary_heads("x", args.x);
  check_rotary_table(args.table, args.x);
  check_positions(args, args.x);
  if (args.weight.defined()) {
    check_head_norm(args, args.x);
    if (!args.rstd.defined()) args.rstd = empty(args.x.context(), shape_of_rstd(args.x), dtype_of_rstd(args.x));
    check_rstd(args.rstd, args.x);
  }
  place_heads("out", args.out, args.x);
  args.x = with_dense_heads(args.x);
  run_kernel(args.x.context(), kRotary, kernel_table(args.x.context()).rotary, args);
  args.out.mark_written();
  return args;
}

RotaryBackwardArgs rotary_backward(RotaryBackwardArgs args) {
  check_rotary_heads("grad_out", args.grad_out);
  place_heads("grad_x", args.grad_x, args.grad_out);
  RotaryArgs& forward = args.forward;
  if (!forward.weight.defined()) {
    KEEL_CHECK(!args.grad_weight.defined(), kRotary, ": grad_weight without a norm");
    RotaryArgs back = forward;
    back.x = args.grad_out;
    back.out = args.grad_x;
    back.inverse = !forward.inverse;
    rotary(back);
    return args;
  }
  check_tensor(kRotary, "x", forward.x, args.grad_out.shape(), args.grad_out.dtype(), args.grad_out.context());
  check_rotary_table(forward.table, forward.x);
  check_positions(forward, forward.x);
  check_head_norm(forward, forward.x);
  check_rstd(forward.rstd, forward.x);
  forward.x = with_dense_heads(forward.x);
  args.grad_out = with_dense_heads(args.grad_out);
  const std::int64_t size = forward.x.dim(3), rows = forward.x.dim(0) * forward.x.dim(2);
  Tensor partials;
  if (args.grad_weight.defined()) {
    const bool fits = args.grad_weight.dtype() == DType::f32 || args.grad_weight.dtype() == forward.x.dtype();
    KEEL_CHECK(fits, kRotary, ": grad_weight must have the dtype of x or f32, got ", args.grad_weight);
    check_tensor(kRotary, "grad_weight", args.grad_weight, {size}, args.grad_weight.dtype(), forward.x.context());
    check_dense(kRotary, "grad_weight", args.grad_weight);
    partials =
        empty(forward.x.context(), {std::min(rows, kMostChunks), size}, dtype_of_rstd(forward.x), Purpose::workspace);
  }
  run_kernel(forward.x.context(), "rotary_norm_backward", kernel_table(forward.x.context()).rotary_norm_backward, args,
             partials);
  args.grad_x.mark_written();
  if (args.grad_weight.defined()) sum_rows(partials, args.grad_weight, args.add_weight);
  return args;
}

}  // namespace keel::kernels
