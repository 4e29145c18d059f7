#pragma once
// The processor as a device: memory of the operating system, and work that has happened when its call returns.

#include <string>

#include "keel/runtime/device_api.h"

namespace keel {

class ProcessorApi : public DeviceApi {
 public:
  void make_current() const override {}

  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  DeviceMemory memory() const override { return {}; }
  std::string identity() const override { return "cpu"; }
  std::string free_memory() const override { return ""; }
  // A cached block is rounded up and never freed, which would hide overruns and late uses from AddressSanitizer.
  void allow_access(void* block, std::size_t bytes, std::size_t block_bytes, NativeStream stream) noexcept override;

  void copy(void* to, const void* from, std::size_t bytes, NativeStream stream) override;
  void set_bytes(void* memory, int value, std::size_t bytes, NativeStream stream) override;

  NativeStream create_stream(bool) override { return nullptr; }
  void destroy_stream(NativeStream) noexcept override {}
  void synchronize(NativeStream) override {}
  NativeEvent record(NativeStream) override { return nullptr; }
  void destroy_event(NativeEvent) noexcept override {}
  void wait(NativeStream, NativeEvent) override {}
  void synchronize_event(NativeEvent) override {}
  bool has_passed(NativeEvent) override { return true; }
  NativeEvent record_time(NativeStream) override { return nullptr; }
  double milliseconds_between(NativeEvent, NativeEvent) override { return 0; }
  void begin_capture(NativeStream) override {}
  NativeGraph end_capture(NativeStream) override { return nullptr; }
  void launch_graph(NativeGraph, NativeStream) override {}
  void destroy_graph(NativeGraph) noexcept override {}
  Fault* fault() override { return nullptr; }
};

}  // namespace keel
