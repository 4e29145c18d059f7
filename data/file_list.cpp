#include "keel/data/file_list.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// The files of a folder whose names fit the pattern.
std::vector<std::string> matching_files(const std::filesystem::path& folder, const std::string& pattern) {
  std::vector<std::string> files;
  std::error_code failed;
  std::filesystem::directory_iterator entries(folder.empty() ? "." : folder, failed);
  for (; !failed && entries != std::filesystem::directory_iterator(); entries.increment(failed)) {
    const std::string name = entries->path().filename().string();
    std::error_code gone;
    if (name.ends_with(".keel-index") || !entries->is_regular_file(gone)) continue;
    if (::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0) files.push_back((folder / name).string());
  }
  if (failed)
    throw Error(concat("the folder '", folder.string(), "' cannot be read: ", failed.message()), ErrorKind::io);
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::vector<std::string> files_at(const std::string& path) {
  const std::filesystem::path name(path);
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) {
    std::vector<std::string> files = matching_files(name, "*");
    KEEL_CHECK(!files.empty(), "there is no file in the folder '", path, "'");
    return files;
  }
  const std::string last = name.filename().string();
  if (last.find_first_of("*?") == std::string::npos || std::filesystem::exists(name, ignored)) return {path};
  std::vector<std::string> files = matching_files(name.parent_path(), last);
  KEEL_CHECK(!files.empty(), "no file fits '", path, "'");
  return files;
}

std::string one_file_at(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  const std::vector<std::string> files = files_at(path);
  KEEL_CHECK(files.size() == 1, "'", path, "' fits ", files.size(), " files, '", files.front(),
             "' the first of them; a pattern names several files of tokens alone: name one file, or a folder of texts");
  return files.front();
}

}  // namespace keel
