#pragma once
// A group of processes (cgroup, of version 1 or 2) that may have so many bytes of memory.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>

#include "keel/runtime/error.h"

namespace keel::testing {

// Below the group of this process, and gone with the object; a process joins it, and has to end before.
class MemoryGroup {
 public:
  // Null where the system does not let us, and then `why_not` says so.
  static std::unique_ptr<MemoryGroup> make(std::int64_t bytes, std::string& why_not) {
    for (const auto& [base, limit] :
         {std::pair(own_group(":memory:", "/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
          {own_group("0::", "/sys/fs/cgroup"), "memory.max"}}) {
      if (base.empty()) continue;
      auto group = std::unique_ptr<MemoryGroup>(new MemoryGroup(base + concat("/keel-test-", ::getpid())));
      const std::string file = group->folder_ + "/" + limit;  // which the system makes in such a folder
      if (!group->is_made_) why_not = concat("no folder can be made in ", base);
      else if (!std::filesystem::exists(file)) why_not = concat("there is no ", limit, " in ", base);
      else if (!write(file, concat(bytes))) why_not = concat("no ", limit, " can be set in ", base);
      else return group;
    }
    if (why_not.empty()) why_not = "there are no groups of processes (cgroup)";
    return {};
  }
  ~MemoryGroup() {
    if (is_made_) ::rmdir(folder_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  // This process belongs to it from now on. False: the system refused.
  bool join() const { return write(folder_ + "/cgroup.procs", "0"); }

 private:
  explicit MemoryGroup(std::string folder) : folder_(std::move(folder)) {
    std::error_code ignored;
    is_made_ = std::filesystem::create_directory(folder_, ignored);
  }
  static bool write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    return static_cast<bool>(out << text << std::flush);
  }
  // The folder of this process's group, where /proc/self/cgroup has a line with that mark; "" where it has none.
  static std::string own_group(const std::string& mark, const std::string& root) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);)
      if (const std::size_t at = line.find(mark); at != std::string::npos && std::filesystem::exists(root))
        return root + line.substr(at + mark.size());
    return {};
  }

  std::string folder_;
  bool is_made_ = false;
};

}  // namespace keel::testing
