#pragma once
// The processor's codecs; their arguments have been checked.

#include "keel/kernels/codec.h"

namespace keel::cpu {

void encode(const CodecArgs& args);
void decode_add(const CodecArgs& args);
void orthonormalise(const Tensor& x);

}  // namespace keel::cpu
