#pragma once
// A folder for one test's files, removed at its end.

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "keel-test-XXXXXX").string()) {
    KEEL_CHECK(::mkdtemp(path_.data()) != nullptr, "cannot make the folder ", path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace keel::testing
