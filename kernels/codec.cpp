#include "keel/kernels/codec.h"

#include <algorithm>
#include <cmath>

#include "keel/kernels/checks.h"
#include "keel/kernels/codec_formulas.h"
#include "keel/kernels/table.h"
#include "keel/runtime/random.h"

namespace keel {
namespace {

// A dense matrix in fp32.
void check_matrix(const char* op, const char* role, const Tensor& x) {
  kernels::check_defined(op, role, x);
  kernels::check_dense(op, role, x);
  KEEL_CHECK(x.dtype() == DType::f32 && x.rank() == 2, op, ": ", role, " must be f32 of two dimensions, got ", x);
}

// numbers: (parts, count)
void check(const char* op, const CodecArgs& args) {
  using namespace kernels;
  check_matrix(op, "numbers", args.numbers);
  check_context(op, "payload", args.payload, args.numbers.context());
  check_dense(op, "payload", args.payload);
  const Dims expected = {args.numbers.dim(0), args.codec.bytes(args.numbers.dim(1))};
  KEEL_CHECK(args.payload.dtype() == DType::u8 && args.payload.shape() == expected, op, ": the payload must be u8 ",
             expected, ", got ", args.payload);
  KEEL_CHECK(args.numbers.dim(1) <= UINT32_MAX, op, ": a part of ", args.numbers.dim(1), " numbers is too long");
}

}  // namespace

std::int64_t Codec::kept(std::int64_t count) const {
  if (number > 0) return std::min(count, number);
  KEEL_CHECK(fraction > 0 && fraction <= 1, "top_k keeps a fraction in (0, 1], got ", fraction);
  return std::min(count, static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(count))));
}

std::int64_t Codec::bytes(std::int64_t count) const {
  if (kind == Kind::top_k) return codec::kKeptBytes * kept(count);
  if (kind == Kind::top_k_2bit)
    return count == 0 ? 0 : codec::kLevelBytes + (kept(count) * codec::entry_width(count) + 7) / 8;
  const std::int64_t scales = 4 * ((count + kBlock - 1) / kBlock);
  if (kind == Kind::int8) return scales + count;
  return scales + count / kBlock * (kBlock / 2) + std::min(count % kBlock, kBlock / 2);
}

void kernels::encode(const CodecArgs& args) {
  check("encode", args);
  const Context& context = args.numbers.context();
  run_kernel(context, "encode", kernel_table(context).encode, args);
  args.payload.mark_written();
  args.numbers.mark_written();
}

void kernels::decode_add(const CodecArgs& args) {
  check("decode_add", args);
  const Context& context = args.numbers.context();
  run_kernel(context, "decode_add", kernel_table(context).decode_add, args);
  args.numbers.mark_written();
}

void kernels::orthonormalise(const Tensor& x) {
  constexpr const char* kOp = "orthonormalise";
  check_matrix(kOp, "x", x);
  run_kernel(x.context(), kOp, kernel_table(x.context()).orthonormalise, x);
  x.mark_written();
}

void kernels::fill_empty_rows(const Tensor& x, std::uint64_t seed, std::string_view name) {
  constexpr const char* kOp = "fill_empty_rows";
  check_matrix(kOp, "x", x);
  run_kernel(x.context(), kOp, kernel_table(x.context()).fill_empty_rows, x, key_of(seed, name));
  x.mark_written();
}

}  // namespace keel
