#pragma once
// Numbers in fewer bytes than they have: what gradients travel as where a network is slow.

#include <cstdint>
#include <string_view>

#include "keel/runtime/tensor.h"

namespace keel {

// How so many fp32 numbers become bytes; always as many, so that who receives them needs no length.
//
// int8: blocks of 256 numbers, each with a scale in fp32, the block's largest size / 127, and a multiple of it in
// [-127, 127] for every number, to nearest. The error of a number is half a scale at most. top_k: the `kept` numbers
// that are largest in size (ties: the first), each as its place and itself.
struct Codec {
  enum class Kind : unsigned char { int8, top_k };
  static constexpr std::int64_t kBlock = 256;

  Kind kind = Kind::int8;
  double fraction = 1;  // of the numbers, rounded up: what top_k keeps

  std::int64_t kept(std::int64_t count) const;
  // int8: count + 4 for each block. top_k: 8 for each number that is kept.
  std::int64_t bytes(std::int64_t count) const;
};

struct CodecArgs {
  Tensor numbers;  // f32 (parts, count), dense
  Tensor payload;  // u8 (parts, codec.bytes(count)), dense
  Codec codec;
};

namespace kernels {

// Writes each row's payload, and leaves in its numbers what that does not carry: the two add up to what was there, to
// the bit. A number that is not finite makes its payload decode to one that is not, and its block's rest is undefined.
// The bytes are the same on every device.
void encode(const CodecArgs& args);
// numbers += what the payload carries. A payload of top_k names no place twice.
void decode_add(const CodecArgs& args);

// The columns of x, f32 (rows, columns), become orthonormal, from the first on (modified Gram-Schmidt, in fp64). One
// that depends on those before it becomes zero.
void orthonormalise(const Tensor& x);
// Rows of x, f32 (rows, columns), that hold nothing but zeros become normal numbers: element i of x is element i of the
// stream (seed, name) of keel/runtime/random.h.
void fill_empty_rows(const Tensor& x, std::uint64_t seed, std::string_view name);

}  // namespace kernels
}  // namespace keel
