#pragma once
// Files for readers that take paths.

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace keel::fuzz {

// One folder for the life of the program.
inline const testing::TemporaryFolder& scratch() {
  static const testing::TemporaryFolder folder;
  return folder;
}

// A file of these bytes; its path.
inline std::string write_scratch(const std::string& name, std::string_view bytes) {
  const std::string path = scratch() / name;
  std::filesystem::remove(path);  // a reader may have mapped the old one
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace keel::fuzz
