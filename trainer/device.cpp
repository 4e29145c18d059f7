#include "keel/trainer/device.h"

#include "keel/runtime/device_api.h"

namespace keel {

Device choose_device(std::string_view text, int local_rank) {
  const bool automatic = text == "auto";
  if (automatic && count_devices(DeviceType::cuda).count == 0) return {};
  Device device = automatic ? Device{DeviceType::cuda, 0} : parse_device(text);
  if (device.type == DeviceType::cpu || text.find(':') != std::string_view::npos) return device;
  if (const int count = count_devices(device.type).count; count > 0) device.index = local_rank % count;
  return device;
}

}  // namespace keel
