#pragma once
// How much memory the processes of this machine may have.

#include <cstdint>
#include <string>

#include "keel/runtime/language.h"

namespace keel {

struct MemoryLimit {
  std::int64_t bytes = 0;    // 0: unknown
  bool is_of_group = false;  // of the group of processes (cgroup) that this one belongs to; else of the machine
};

// The smaller of the machine's memory and the limits of this process's cgroup and those around it (of version 1 or 2).
// `root`: where /proc and /sys are.
MemoryLimit memory_limit(const std::string& root = "");

// "62.8 GiB".
std::string binary_size(double bytes);

}  // namespace keel
