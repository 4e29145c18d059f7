#include "keel/runtime/remove_folder.h"

#include <exception>
#include <filesystem>
#include <system_error>

namespace keel {

void remove_folder(const std::string& path) noexcept {
  constexpr int kTries = 100;
  try {
    for (int tries = 0; tries < kTries; ++tries) {
      std::error_code code;
      std::filesystem::remove_all(path, code);
      // Somebody has made a file there since it was looked at, or removed one.
      if (code != std::errc::directory_not_empty && code != std::errc::no_such_file_or_directory) return;
    }
  } catch (const std::exception&) {}  // no memory for it
}

}  // namespace keel
