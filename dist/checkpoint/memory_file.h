#pragma once
// Files of a host's memory that are mapped, and written again and again: their pages stay, so that writing them costs
// little more than a memcpy.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "keel/dist/checkpoint/extent_writer.h"

namespace keel {

class MemoryFile {
 public:
  // Opens it, or makes it, with so many bytes. All of them have their memory when this returns; an Error of kind io
  // says where there is none left.
  MemoryFile(const std::string& path, std::uint64_t bytes);
  ~MemoryFile();  // the file stays
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::span<std::byte> bytes() const { return {memory_, size_}; }
  // Whether the path is that of this file. It is not where somebody has removed it.
  bool is_at(const std::string& path) const;

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t device_ = 0, number_ = 0;  // of the file
};

// Those of a folder, by their names, which moves with them.
class MemoryFiles {
 public:
  // One that is there and has so many bytes is used again.
  MemoryFile& open(const std::string& folder, const std::string& name, std::uint64_t bytes);
  // Writes a section's file. As write_section() does.
  Manifest write(const std::string& folder, const Section& section);

 private:
  std::map<std::string, std::unique_ptr<MemoryFile>> files_;
};

}  // namespace keel
