#include "launcher_strays.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "keel/runtime/error.h"
#include "ranks.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

// Whether no process has the file open, or mapped: else the system gives nobody a lease to write.
bool is_left_alone(const fs::path& file) {
  const int opened = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (opened < 0) return false;
  ::fcntl(opened, F_SETSIG, SIGURG);  // who opens it meanwhile must not end this process by SIGIO
  const bool leased = ::fcntl(opened, F_SETLEASE, F_WRLCK) == 0;
  ::close(opened);
  return leased;
}

// Also where nobody has asked yet how it ended.
bool is_gone(const std::string& process) {
  std::string command;
  std::getline(std::ifstream(concat("/proc/", process, "/cmdline")), command);
  return command.empty();
}

bool is_stray_session(const fs::path& folder) {
  const std::string name = folder.filename().string();
  constexpr std::string_view kPrefix = "pid.";
  if (!name.starts_with(kPrefix)) return false;
  const std::string process = name.substr(kPrefix.size());
  if (process.find_first_not_of("0123456789") != std::string::npos || !is_gone(process)) return false;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && !is_left_alone(entry.path())) return false;
  return true;
}

}  // namespace

void remove_launcher_strays(const std::string& temporary, const std::string& memory) {
  const std::string owner = concat(host_name(), '.', ::geteuid());
  std::error_code ignored;  // what cannot be removed harms nobody
  const fs::path sessions = fs::path(temporary) / ("ompi." + owner);
  for (const auto& entry : fs::directory_iterator(sessions, ignored)) {
    try {
      if (is_stray_session(entry.path())) fs::remove_all(entry.path(), ignored);
    } catch (const fs::filesystem_error&) { continue; }  // its launcher is removing it
  }
  fs::remove(sessions, ignored);  // where it is empty
  const std::string segment = concat("vader_segment.", owner, '.');
  for (const auto& entry : fs::directory_iterator(memory, ignored))
    if (entry.path().filename().string().starts_with(segment) && is_left_alone(entry.path()))
      fs::remove(entry.path(), ignored);
}

}  // namespace keel::cli
