#pragma once
// The files beside a state.json: what make_corpus.cpp names, and the target reads.

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel::fuzz {

struct OldFile {
  std::string_view name, header, numbers;
};

// A tensor and two parts of another one; the numbers are any.
inline constexpr OldFile kOldWeights = {"model.safetensors",
                                        R"({"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                        R"("weight (2, 3) 0:4":{"dtype":"F32","shape":[4],"data_offsets":[8,24]},)"
                                        R"("weight (2, 3) 4:6":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})",
                                        "32 bytes of three rows of floats"};
inline constexpr OldFile kOldState = {"optimizer.safetensors",
                                      R"({"bias.exp_avg":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", "any."};

// As a safetensors file.
inline std::string bytes_of(const OldFile& file) {
  std::string bytes;
  for (std::uint64_t left = file.header.size(), i = 0; i < 8; ++i, left >>= 8) bytes += static_cast<char>(left & 255);
  return bytes.append(file.header).append(file.numbers);
}

}  // namespace keel::fuzz
