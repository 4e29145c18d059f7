#pragma once
// A file that several processes write, one after the other: each goes on where the one before it was ended.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// It is written as NAME.partial and gets its name by commit(), in one step. Without commit it stays for who goes on.
// One writer at a time. Every failure is an Error of kind io that names the path and the system's reason.
class PartialFile {
 public:
  static std::string partial_of(const std::string& path);
  // Whether it is the name of one without commit.
  static bool is_partial(std::string_view path);

  // Opens what is there of it, or begins it.
  explicit PartialFile(std::string path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // Forgets what is behind so many bytes; there must be as many.
  void cut(std::uint64_t bytes);
  void write(std::span<const std::byte> bytes);
  // Writes again what was written before.
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  // Returns when all that was written is on the disk.
  void flush();
  void commit();
  // Removes it; nothing can be written any more.
  void discard();

 private:
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace keel
