#include "keel/runtime/memory_limit.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// The number that a file begins with; 0 where there is none ("max", no such file).
std::int64_t number_in(const std::string& file) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value ? value : 0;
}

std::int64_t machine_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string name; file >> name; file.ignore(1 << 10, '\n')) {
    std::int64_t kibibytes = 0;
    if (name == "MemTotal:" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

// Where the limits of a controller's groups are: a folder, the file's name in each, and this process's group.
struct Hierarchy {
  std::string folder, file;
  std::filesystem::path group;
};

// Lines such as "4:memory:/job" of version 1, and "0::/job" of version 2.
std::vector<Hierarchy> hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = concat(',', line.substr(first + 1, second - first - 1), ','),
                      group = line.substr(second + 1);
    if (controllers == ",,") found.push_back({root + "/sys/fs/cgroup", "memory.max", group});
    else if (controllers.find(",memory,") != std::string::npos)
      found.push_back({root + "/sys/fs/cgroup/memory", "memory.limit_in_bytes", group});
  }
  return found;
}

}  // namespace

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit limit = {machine_memory(root), false};
  for (const Hierarchy& each : hierarchies(root))
    for (std::filesystem::path group = each.group.relative_path();; group = group.parent_path()) {
      const std::int64_t bytes = number_in((std::filesystem::path(each.folder) / group / each.file).string());
      if (bytes > 0 && (limit.bytes == 0 || bytes < limit.bytes)) limit = {bytes, true};
      if (group.empty()) break;
    }
  return limit;
}

std::string binary_size(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t at = 0;
  for (; bytes >= 1024 && at + 1 < std::size(units); ++at) bytes /= 1024;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f %s", bytes < 100 && at > 0 ? 1 : 0, bytes, units[at]);
  return text;
}

}  // namespace keel
