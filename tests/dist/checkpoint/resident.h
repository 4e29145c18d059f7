#pragma once
// What the system counts as this process's memory.

#include <cstdint>
#include <fstream>
#include <string>

#include "keel/runtime/file.h"

namespace keel::testing {

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsResident = true;
#else
inline constexpr bool kCountsResident = false;  // a sanitizer keeps memory that was given back
#endif

// "VmHWM", the peak, or "VmRSS" of this process, in bytes.
inline std::int64_t of_process(const std::string& name) {
  const std::string status = read_text_file("/proc/self/status");
  return std::stoll(status.substr(status.find(name) + name.size() + 1)) * 1024;
}

// The peak begins anew.
inline void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace keel::testing
