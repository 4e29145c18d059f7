#include "keel/kernels/codec.h"

#include <algorithm>
#include <cmath>

#include "keel/kernels/checks.h"
#include "keel/kernels/cpu/codec.h"

namespace keel {
namespace {

// Devices have none yet: what is compressed is in the memory of processors.
void check_processor(const char* op, const Tensor& tensor) {
  kernels::check_defined(op, "numbers", tensor);
  if (tensor.device().type != DeviceType::cpu)
    throw Error(concat(op, " is not implemented on ", tensor.device()), ErrorKind::unsupported);
}

void check(const char* op, const CodecArgs& args) {
  using namespace kernels;
  check_processor(op, args.numbers);
  check_context(op, "payload", args.payload, args.numbers.context());
  check_dense(op, "numbers", args.numbers);
  check_dense(op, "payload", args.payload);
  KEEL_CHECK(args.numbers.dtype() == DType::f32 && args.numbers.rank() == 2, op,
             ": numbers must be f32 (parts, count), got ", args.numbers);
  const Dims expected = {args.numbers.dim(0), args.codec.bytes(args.numbers.dim(1))};
  KEEL_CHECK(args.payload.dtype() == DType::u8 && args.payload.shape() == expected, op, ": the payload must be u8 ",
             expected, ", got ", args.payload);
  KEEL_CHECK(args.numbers.dim(1) <= UINT32_MAX, op, ": a part of ", args.numbers.dim(1), " numbers is too long");
}

}  // namespace

std::int64_t Codec::kept(std::int64_t count) const {
  KEEL_CHECK(fraction > 0 && fraction <= 1, "top_k keeps a fraction in (0, 1], got ", fraction);
  return std::min(count, static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(count))));
}

std::int64_t Codec::bytes(std::int64_t count) const {
  if (kind == Kind::top_k) return 8 * kept(count);
  return count + 4 * ((count + kBlock - 1) / kBlock);
}

void kernels::encode(const CodecArgs& args) {
  check("encode", args);
  cpu::encode(args);
  args.payload.mark_written();
  args.numbers.mark_written();
}

void kernels::decode_add(const CodecArgs& args) {
  check("decode_add", args);
  cpu::decode_add(args);
  args.numbers.mark_written();
}

void kernels::orthonormalise(const Tensor& x) {
  constexpr const char* kOp = "orthonormalise";
  check_processor(kOp, x);
  check_dense(kOp, "x", x);
  KEEL_CHECK(x.dtype() == DType::f32 && x.rank() == 2, kOp, ": x must be f32 (rows, columns), got ", x);
  cpu::orthonormalise(x);
  x.mark_written();
}

}  // namespace keel
