#pragma once
// Codecs: numbers encoded in fewer bytes, as gradients travel where a network is slow.

#include <cstdint>
#include <string_view>

#include "keel/runtime/tensor.h"

namespace keel {

// How fp32 numbers become a payload. Its length depends on their count alone, so the receiver needs no length.
//
// int8: blocks of 256 numbers. A block has one scale in fp32, its largest magnitude / 127; each number is the nearest
// multiple of the scale in [-127, 127], so its error is at most half a scale. int4: the same with multiples in [-7, 7],
// two to a byte. top_k: the `kept` numbers of largest
// magnitude (of equal ones the first), each as its index and its value. top_k_2bit: the same numbers, each as its index
// in as few bits as hold it, its sign, and whether its magnitude is above their mean; both classes arrive as the mean
// of their magnitudes, in fp32.
struct Codec {
  enum class Kind : unsigned char { int8, top_k, int4, top_k_2bit };
  static constexpr std::int64_t kBlock = 256;

  Kind kind = Kind::int8;
  // What top_k and top_k_2bit keep: so many numbers or, where that is 0, this fraction of them, rounded up.
  std::int64_t number = 0;
  double fraction = 1;

  std::int64_t kept(std::int64_t count) const;
  // int8: count + 4 for each block. int4: about half of it; a block of n numbers has min(n, 128) bytes. top_k: 8 for
  // each number that is kept. top_k_2bit: 8, and for each of them 2 bits and those of an index; rounded up.
  std::int64_t bytes(std::int64_t count) const;
};

struct CodecArgs {
  Tensor numbers;  // f32 (parts, count), dense
  Tensor payload;  // u8 (parts, codec.bytes(count)), dense
  Codec codec;
};

namespace kernels {

// Writes each row's payload and leaves the residual in `numbers`: payload and residual add up to what was there, to the
// bit; after top_k_2bit the residual is rounded once. A number that is not finite decodes to one that is not, and the
// residual of its block is undefined. The bytes are the same on every device.
void encode(const CodecArgs& args);
// numbers += the decoded payload. A payload names no index twice.
void decode_add(const CodecArgs& args);

// Makes the columns of x, f32 (rows, columns), orthonormal, from the first on (modified Gram-Schmidt, in fp64). A
// column that depends on those before it becomes zero.
void orthonormalise(const Tensor& x);
// Fills rows of x, f32 (rows, columns), that are all zero with normal numbers: element i of x becomes element i of the
// stream (seed, name) of keel/runtime/random.h.
void fill_empty_rows(const Tensor& x, std::uint64_t seed, std::string_view name);

}  // namespace kernels
}  // namespace keel
