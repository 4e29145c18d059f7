#include "keel/trainer/device.h"

#include "keel/runtime/device_api.h"

namespace keel {

Device choose_device(std::string_view text) {
  if (text != "auto") return parse_device(text);
  return count_devices(DeviceType::cuda).count > 0 ? Device{DeviceType::cuda, 0} : Device{};
}

}  // namespace keel
