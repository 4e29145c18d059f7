#pragma once
// A product on tensor cores, for exercises: mma.sync.m16n8k16 of bf16, which NVIDIA's PTX ISA describes.

#include "keel/runtime/emulation/tensor_core.h"
#include "learn/given/kernel.h"

namespace learn {

// Counts a lane's call.
void note_product();

// Two bf16 in a register: `first` in its lower half.
inline unsigned pack(bf16 first, bf16 second) {
  return first.bits | static_cast<unsigned>(second.bits) << 16;
}

// sum += a b, of a (16, 16) and b (16, 8), by the 32 lanes of a warp together. The head of the exercise says
// which numbers lie in which registers of a lane.
inline void multiply_add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2], KEEL_HERE) {
  note_product();
  keel::emulation::multiply_add<bf16>(sum, a, b[0], b[1], where);
}

}  // namespace learn
