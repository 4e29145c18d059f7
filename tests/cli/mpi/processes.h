#pragma once
// The processes that a launcher started, and may have left behind.

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace keel::testing {

// The ids of the processes whose working directory is `folder`, a line each.
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

// The ids of those that are still there four seconds later: a process that was killed may take a while to end.
inline std::string processes_left_in(const std::string& folder) {
  std::string left = processes_in(folder);
  for (int looks = 0; looks < 80 && !left.empty(); ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left = processes_in(folder);
  }
  return left;
}

}  // namespace keel::testing
