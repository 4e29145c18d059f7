#pragma once
// The processes that a launcher started, and may have left behind.

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace keel::testing {

// The ids of the processes whose working directory is `folder` or lies in it, a line each.
inline std::string processes_in(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string place = std::filesystem::read_symlink(entry.path() / "cwd", error).string() + "/";
    if (place.starts_with(folder)) found += name + "\n";
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

// Of a file whose size the system does not tell; what could be read of it, as a process may end meanwhile.
inline std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// 0: there is no such process.
inline pid_t parent_of(pid_t process) {
  const std::string status = text_of("/proc/" + std::to_string(process) + "/stat");
  pid_t parent = 0;
  char state = 0;
  std::istringstream(status.substr(std::min(status.rfind(')') + 1, status.size()))) >> state >> parent;
  return parent;
}

// The process that trains as one rank in `folder`, which MPI or an address connects with the others; 0: none.
inline pid_t process_of_rank(int rank, const std::string& folder) {
  std::istringstream list(processes_in(folder));
  for (std::string id; std::getline(list, id);) {
    const std::string command = text_of("/proc/" + id + "/cmdline"), environment = text_of("/proc/" + id + "/environ");
    const bool trains = command.find(std::string("keel\0train", 10)) != std::string::npos &&
                        command.find("--rank") == std::string::npos;
    for (const char* name : {"OMPI_COMM_WORLD_RANK=", "KEEL_RANK="})
      if (trains && environment.find(name + std::to_string(rank) + '\0') != std::string::npos) return std::stoi(id);
  }
  return 0;
}

}  // namespace keel::testing
