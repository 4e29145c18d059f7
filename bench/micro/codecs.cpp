// Codecs of gradients. Encoding leaves the residual and decoding adds what was taken, so each puts back what the other
// has changed.

#include "keel/kernels/codec.h"

#include "bench/micro/micro.h"

namespace keel::bench {
namespace {

using Prepared = MemoryKernel::Prepared;

// Two parts, as two ranks have.
CodecArgs args_of(const Context& context, std::int64_t elements, const Codec& codec) {
  const std::int64_t count = elements / 2;
  return {numbers(context, {2, count}, DType::f32), zeros(context, {2, codec.bytes(count)}, DType::u8), codec};
}

// Both move `bytes` for each number.
void add_codec(const Options& options, const std::string& name, const Codec& codec, double encoded, double decoded) {
  const std::int64_t width = MemoryKernel().width;
  const auto encode = [=](const Context& context, std::int64_t rows) -> Prepared {
    const CodecArgs args = args_of(context, rows * width, codec);
    return {[=] { kernels::encode(args); }, [=] { kernels::decode_add(args); }};
  };
  const auto decode = [=](const Context& context, std::int64_t rows) -> Prepared {
    const Prepared both = encode(context, rows);
    both.run();
    return {both.restore, both.run};
  };
  add_memory_kernel(options, {concat("codec/", name, "_encode/f32"), encoded, encode});
  add_memory_kernel(options, {concat("codec/", name, "_decode_add/f32"), decoded, decode});
}

}  // namespace

void add_codecs(const Options& options) {
  const double int8 = 1 + 4.0 / Codec::kBlock;
  add_codec(options, "int8", {.kind = Codec::Kind::int8}, 8 + int8, 8 + int8);
  // Encoding must read every number and clear those that are kept; decoding touches these alone. Kept numbers lie far
  // apart, so decoding moves more than it must.
  const double fraction = 0.01;
  add_codec(options, "top_k", {.kind = Codec::Kind::top_k, .fraction = fraction}, 4 + 12 * fraction, 16 * fraction);
  add_codec(options, "top_k_2bit", {.kind = Codec::Kind::top_k_2bit, .fraction = fraction}, 4 + 8 * fraction,
            12 * fraction);
}

}  // namespace keel::bench
