// A build without CUDA and without its emulation: the processor is the only device.

#include "keel/runtime/device_api.h"
#include "keel/runtime/error.h"

namespace keel {

DeviceCount count_devices(DeviceType type) {
  if (type == DeviceType::cpu) return {1};
  return {0, "this build has only the processor; configure it with -DKEEL_CUDA=ON (needs nvcc) or EMULATED"};
}

std::shared_ptr<DeviceApi> open_device(Device device) {
  if (device.type == DeviceType::cpu && device.index == 0) return processor_api();
  throw Error(concat("device ", device, " is not there: ",
                     device.type == DeviceType::cpu ? "the processor is cpu" : count_devices(device.type).why_none),
              ErrorKind::unsupported);
}

std::shared_ptr<DeviceApi> pinned_api(Device) { return processor_api(); }
std::string describe_device(Device device) { return to_string(device); }

}  // namespace keel
