#include "keel/runtime/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "keel/runtime/file.h"

namespace keel {
namespace {

std::string folder_below(const char* variable, std::string_view below) {
  const char* const value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? std::string() : std::string(value).append(below);
}

}  // namespace

std::string hub_cache() {
  for (const auto& [variable, below] : {std::pair<const char*, std::string_view>{"HF_HUB_CACHE", ""},
                                        {"HF_HOME", "/hub"},
                                        {"XDG_CACHE_HOME", "/huggingface/hub"},
                                        {"HOME", "/.cache/huggingface/hub"}})
    if (std::string folder = folder_below(variable, below); !folder.empty()) return folder;
  return {};
}

std::string hub_folder(std::string_view model) {
  const std::string cache = hub_cache();
  // A name is one word, or two with a slash; anything else is no folder of the cache's.
  const std::size_t slash = model.find('/');
  const bool is_name = !model.empty() && model.front() != '.' && model.front() != '/' && model.back() != '/' &&
                       model.find("..") == std::string_view::npos &&
                       (slash == std::string_view::npos || model.find('/', slash + 1) == std::string_view::npos);
  if (cache.empty() || !is_name) return {};
  std::string folder = cache + "/models--";
  for (const char c : model) folder += c == '/' ? std::string("--") : std::string(1, c);
  std::error_code ignored;  // a cache that may not be looked into has nothing
  if (!std::filesystem::is_regular_file(folder + "/refs/main", ignored)) return {};
  std::string revision = read_text_file(folder + "/refs/main");
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == ' ')) revision.pop_back();
  const std::string snapshot = folder + "/snapshots/" + revision;
  return !revision.empty() && std::filesystem::is_directory(snapshot, ignored) ? snapshot : std::string();
}

}  // namespace keel
