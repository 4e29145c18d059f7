#pragma once
// A device as a value: cpu, cuda:0, emulated:0.

#include <compare>
#include <ostream>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

enum class DeviceType : unsigned char { cpu, cuda, emulated };

// `emulated` runs CUDA kernels on the host. It is never called cuda, so that no figure
// measured on it can pass for a GPU's.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  auto operator<=>(const Device&) const = default;
};

std::string to_string(Device device);
// Reads "cpu", "cuda", "cuda:1", "emulated:0"; anything else is an Error.
Device parse_device(std::string_view text);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace keel
