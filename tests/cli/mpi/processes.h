#pragma once
// The processes that a launcher started, and may have left behind.

#include <filesystem>
#include <string>

namespace keel::testing {

// Ids of those that work in a folder, a line each.
inline std::string processes_in(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (std::filesystem::read_symlink(entry.path() / "cwd", error).string() + "/" == folder) found += name + "\n";
  }
  return found;
}

}  // namespace keel::testing
