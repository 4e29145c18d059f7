#pragma once
// What the kernels of codecs share.

#include "keel/kernels/codec.h"

namespace keel::cuda {

struct CodecRows {
  float* numbers;      // (parts, count)
  std::byte* payload;  // (parts, bytes)
  std::int64_t parts, count, bytes;

  explicit CodecRows(const CodecArgs& args) : CodecRows(args.numbers, args.payload) {}
  CodecRows(const Tensor& of_numbers, const Tensor& of_payload)
      : numbers(of_numbers.data<float>()),
        payload(of_payload.raw()),
        parts(of_numbers.dim(0)),
        count(of_numbers.dim(1)),
        bytes(of_payload.dim(1)) {}
};

// There are numbers.
void encode_top_k(const CodecArgs& args);
void add_top_k(const CodecArgs& args);
void encode_top_k_2bit(const CodecArgs& args);
void add_top_k_2bit(const CodecArgs& args);

}  // namespace keel::cuda
