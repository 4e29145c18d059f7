#include "keel/runtime/dtype.h"

#include <array>
#include <charconv>

#include "keel/runtime/device.h"

namespace keel {
namespace {

struct DTypeRow {
  std::string_view name;
  std::size_t size;
};
// In the order of the enumeration.
constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {
    {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"f64", 8}, {"i32", 4}, {"i64", 8}, {"u8", 1}}};

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].size; }

std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }

DType parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  throw Error(concat("unknown dtype '", name, "'; known are f32, bf16, f16, f64, i32, i64, u8"));
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::cuda: return concat("cuda:", device.index);
    case DeviceType::emulated: return concat("emulated:", device.index);
  }
  return "?";
}

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  Device device;
  if (name == "cpu") device.type = DeviceType::cpu;
  else if (name == "cuda") device.type = DeviceType::cuda;
  else if (name == "emulated") device.type = DeviceType::emulated;
  else throw Error(concat("unknown device '", text, "'; known are cpu, cuda[:N], emulated[:N]"));
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    KEEL_CHECK(error == std::errc{} && end == digits.data() + digits.size() && device.index >= 0, "device '", text,
               "': the part after the colon must be a number from 0");
    KEEL_CHECK(device.type != DeviceType::cpu || device.index == 0, "there is one cpu device, got '", text, "'");
  }
  return device;
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace keel
