#pragma once
// Files that a command writes and a user named.

#include <filesystem>
#include <string>

#include "keel/runtime/error.h"

namespace keel {

// An Error for a folder, for a file that is there already unless `replaces`, and for the input itself.
inline void check_output_target(const std::string& out, const std::string& input, bool replaces) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  KEEL_CHECK(!fs::is_directory(out, ignored), "'", out, "' is a folder; name a file");
  KEEL_CHECK(replaces || !fs::exists(fs::symlink_status(out, ignored)), "'", out,
             "' is there already; --force replaces it");
  const bool is_input = fs::equivalent(input, out, ignored);
  KEEL_CHECK(!is_input, "'", out, "' is the input; name another file");
}

}  // namespace keel
