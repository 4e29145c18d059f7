#include "keel/data/cache_folder.h"

#include <cstdlib>

namespace keel {

std::string folder_for_caches(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const char* caches = std::getenv("XDG_CACHE_HOME");
  if (caches != nullptr && *caches == '/') return std::string(caches) + "/keel";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/keel" : std::string();
}

}  // namespace keel
