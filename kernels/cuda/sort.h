#pragma once
// Stable radix sorts on the device, whose result depends on the keys alone.

#include "keel/runtime/tensor.h"

namespace keel::cuda {

struct SortedRows {
  Tensor keys;       // i32 (rows, count), ascending as unsigned numbers
  Tensor positions;  // i32 (rows, count): where in its row each key was; equal keys keep their order
};

// Queues a sort of each row by the bits [first_bit, end_bit) of its keys, eight bits a pass; the other bits are equal
// or of no interest. keys: i32 (rows, count), dense, read as unsigned numbers, and overwritten.
SortedRows sort_rows(const Tensor& keys, int first_bit, int end_bit);

}  // namespace keel::cuda
