#pragma once
// Runs the program `keel` and collects what it prints.

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

struct Outcome {
  int code = -1;  // exit code; 128 + n after signal n
  std::string out, err;
};

// `arguments` as typed in a shell, in the folder `where`.
inline Outcome run_keel(const std::string& arguments, const std::string& where = ".") {
  const TemporaryFolder folder;
  const std::string command = concat("cd '", where, "' && '", KEEL_PROGRAM, "' ", arguments, " >'", folder / "out",
                                     "' 2>'", folder / "err", "' </dev/null");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text_file(folder / "out"),
          read_text_file(folder / "err")};
}

}  // namespace keel::testing
