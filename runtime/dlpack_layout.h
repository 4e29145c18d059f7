#pragma once
// DLPack's structures as its specification lays them out, version 1.0. Only for files that do not include dlpack.h.

#include <cstdint>

#include "keel/runtime/language.h"

// NOLINTBEGIN(readability-identifier-naming): the names are the specification's
struct DLPackVersion {
  std::uint32_t major, minor;
};
enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};
enum DLDataTypeCode : std::uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;  // of elements; no strides: dense
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);  // may be null
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
inline constexpr std::uint64_t kDLPackReadOnly = 1;  // of flags
// NOLINTEND(readability-identifier-naming)
