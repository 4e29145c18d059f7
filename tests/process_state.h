#pragma once
// What a process has and says: threads, open files, standard output.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

inline std::int64_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}
inline std::int64_t threads() { return entries_of("/proc/self/task"); }
inline std::int64_t open_files() { return entries_of("/proc/self/fd"); }

// What f makes the process write to its standard output and error.
inline std::string said_by(const std::function<void()>& f) {
  const TemporaryFolder place;
  const std::string text = place / "said";
  const int file = ::open(text.c_str(), O_CREAT | O_WRONLY, 0600), out = ::dup(1), err = ::dup(2);
  ::fflush(nullptr);
  ::dup2(file, 1);
  ::dup2(file, 2);
  f();
  ::fflush(nullptr);
  ::dup2(out, 1);
  ::dup2(err, 2);
  for (const int each : {file, out, err}) ::close(each);
  return read_text_file(text);
}

}  // namespace keel::testing
