#include "machine.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "keel/runtime/error.h"

namespace keel::cli {

std::string value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !line.starts_with(name)) continue;
    if (line.substr(name.size(), colon - name.size()).find_first_not_of(" \t") != std::string_view::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
  }
  return "";
}

std::string vector_features(std::string_view flags) {
  const std::string padded = fmt::format(" {} ", flags);
  std::string found;
  for (const std::string_view feature : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16",
                                         "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"})
    if (padded.find(fmt::format(" {} ", feature)) != std::string::npos)
      found += fmt::format("{}{}", found.empty() ? "" : " ", feature);
  return found.empty() ? "none that keel uses" : found;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A line: numbers, root, mount point, options, then after a lone "-" the type. The longest mount point that the path is
// below has it, and of equal ones the last, which hides the others.
std::string file_system_of(std::string_view path, const std::string& mounts) {
  std::string found;
  std::size_t longest = 0;
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string point, type, word;
    for (int i = 0; i < 5; ++i) words >> point;
    while (words >> word && word != "-") {}
    if (!(words >> type)) continue;
    const bool is_below = point == "/" || path == point || path.starts_with(point + "/");
    if (!is_below || point.size() < longest) continue;
    longest = point.size();
    found = type;
  }
  return found;
}

std::string program_path(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  KEEL_CHECK(length > 0, "/proc/self/exe does not tell where keel is");
  path.resize(static_cast<std::size_t>(length));
  return path;
}

int usable_processors() {
  cpu_set_t mask;
  return ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? std::max(1, CPU_COUNT(&mask)) : online_processors();
}

int online_processors() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

LoadedFunction loaded_function(const char* name) {
  LoadedFunction found;
  found.address = ::dlsym(RTLD_DEFAULT, name);
  if (Dl_info about; found.address != nullptr && ::dladdr(found.address, &about) != 0) {
    std::error_code none;
    const auto path = std::filesystem::canonical(about.dli_fname, none);
    found.file = none ? about.dli_fname : path.string();
  }
  return found;
}

std::string library_version(std::int64_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace keel::cli
