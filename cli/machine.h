#pragma once
// What the operating system says about this machine, for `keel env` and `keel launch`.

#include <cstdint>
#include <string>
#include <string_view>

namespace keel::cli {

// The first value of `name` in text like /proc/cpuinfo or /proc/meminfo ("name : value"); empty when there is none.
std::string value_of(std::string_view text, std::string_view name);

// The vector features that keel can use, as far as a processor's flags contain them.
std::string vector_features(std::string_view flags);

// A whole small file, empty when it cannot be read.
std::string file_text(const std::string& path);

// The type of the file system that a path is on, as "ext4", by the lines of /proc/self/mountinfo in `mounts`; empty
// where none has it. `path` is absolute, without links.
std::string file_system_of(std::string_view path, const std::string& mounts);

// The path of a program in PATH; empty when there is none.
std::string program_path(std::string_view name);

// The path of this program.
std::string own_path();

// Processors that this process may use, and all that are switched on.
int usable_processors();
int online_processors();

// Where the loader found a function for this process, and the file that it is in; no address when there is none.
struct LoadedFunction {
  void* address = nullptr;
  std::string file;
};
LoadedFunction loaded_function(const char* name);

// "13.1.0" of 130100, as NVIDIA's libraries tell their versions.
std::string library_version(std::int64_t number);

}  // namespace keel::cli
