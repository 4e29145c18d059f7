#pragma once
// What the safetensors reader and writer agree on.

#include <array>
#include <bit>
#include <cstddef>
#include <string_view>

#include "keel/runtime/dtype.h"

namespace keel::safetensors {

static_assert(std::endian::native == std::endian::little, "safetensors files hold little-endian numbers");

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeName {
  std::string_view name;
  DType dtype;
};
// The first name of a dtype is the one that is written.
inline constexpr std::array<DTypeName, 8> kDTypeNames = {{{"F32", DType::f32},
                                                          {"BF16", DType::bf16},
                                                          {"F16", DType::f16},
                                                          {"F64", DType::f64},
                                                          {"I32", DType::i32},
                                                          {"I64", DType::i64},
                                                          {"U8", DType::u8},
                                                          {"BOOL", DType::u8}}};

}  // namespace keel::safetensors
