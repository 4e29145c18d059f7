#pragma once
// A group of processes (cgroup, of version 1 or 2) that may have so many bytes of memory.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "keel/runtime/error.h"

namespace keel::testing {

// Near the group of this process, and gone with the object; a process joins it, and has to end before.
class MemoryGroup {
 public:
  // Null where the system does not let us, and then `why_not` says so.
  static std::unique_ptr<MemoryGroup> make(std::int64_t bytes, std::string& why_not) {
    for (const Place& place : places(bytes)) {
      auto group = std::unique_ptr<MemoryGroup>(new MemoryGroup(place.base));
      const auto has = [&](const std::string& file) { return std::filesystem::exists(group->folder_ + "/" + file); };
      const auto set = [&](const std::string& file, std::int64_t number) {
        return write(group->folder_ + "/" + file, concat(number));
      };
      // Files that the system makes in such a folder. Those of swap are not there where it counts none.
      if (!group->is_made_) why_not = concat("no folder can be made in ", place.base);
      else if (!has(place.limit)) why_not = concat("there is no ", place.limit, " in ", place.base);
      else if (!set(place.limit, bytes)) why_not = concat("no ", place.limit, " can be set in ", place.base);
      else if (has(place.swap) && !set(place.swap, place.swap_bytes))
        why_not = concat("no ", place.swap, " can be set in ", place.base);
      else return group;
    }
    if (why_not.empty()) why_not = "there are no groups of processes (cgroup)";
    return {};
  }
  ~MemoryGroup() {
    if (is_made_) ::rmdir(folder_.c_str());
    if (is_passed_on_) write(control_, "-memory");
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  // This process belongs to it from now on. False: the system refused.
  bool join() const { return write(folder_ + "/cgroup.procs", "0"); }

 private:
  // Where a group may be made, and the files of its limits. Swap would let a process have more, so the sum of both is
  // limited in version 1, and swap alone in version 2.
  struct Place {
    std::string base, limit, swap;
    std::int64_t swap_bytes;
  };
  static std::vector<Place> places(std::int64_t bytes) {
    std::vector<Place> all;
    if (const std::string own = own_group("memory", "/sys/fs/cgroup/memory"); !own.empty())
      all.push_back({own, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes});
    const std::string root = "/sys/fs/cgroup", own = own_group("", root);
    if (own.empty()) return all;
    // In version 2 a group that has processes passes no limits on to groups below it, unless it is the system's root:
    // so the new one is beside this process's.
    for (const std::string& base : {own, std::filesystem::path(own).parent_path().string()})
      if (base.starts_with(root)) all.push_back({base, "memory.max", "memory.swap.max", 0});
    return all;
  }

  explicit MemoryGroup(const std::string& base)
      : folder_(concat(base, "/keel-test-", ::getpid())), control_(base + "/cgroup.subtree_control") {
    std::error_code ignored;
    is_made_ = std::filesystem::create_directory(folder_, ignored);
    if (is_made_ && std::filesystem::exists(control_) && !passes_memory_on())
      is_passed_on_ = write(control_, "+memory");
  }
  // Of version 2: whether groups below have limits of memory.
  bool passes_memory_on() const {
    std::ifstream file(control_);
    for (std::string controller; file >> controller;)
      if (controller == "memory") return true;
    return false;
  }
  static bool write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    return static_cast<bool>(out << text << std::flush);
  }
  // The folder of this process's group, by its line in /proc/self/cgroup: "4:memory:/job", or "0::/job" in version 2.
  // "" where there is none.
  static std::string own_group(const std::string& controller, const std::string& root) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const std::size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == std::string::npos || line.substr(first + 1, second - first - 1) != controller) continue;
      const std::string group = root + line.substr(second + 1);
      if (std::filesystem::exists(group)) return group.ends_with('/') ? group.substr(0, group.size() - 1) : group;
    }
    return {};
  }

  std::string folder_, control_;
  bool is_made_ = false;
  bool is_passed_on_ = false;  // by this object
};

}  // namespace keel::testing
