#pragma once
// A file without a name, in which a program keeps numbers for which it has no memory. It goes away with the program,
// however that ends.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "keel/runtime/language.h"

namespace keel {

// Any number of threads may read and write at a time, at different places. Every failure is an Error of kind io that
// names the folder, the place in the file and the system's reason; so is a call that moves fewer bytes than were asked
// for.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  virtual const std::string& folder() const = 0;
  // What offsets, counts of bytes and addresses of memory must be multiples of: 1 where reads and writes go through the
  // system's cache, and more where they go past it.
  virtual std::size_t alignment() const = 0;
  // The file has room for bytes [offset, offset + bytes) from now on.
  virtual void reserve(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
};

// In this folder, which is made where there is none; past the system's cache where the file system can.
std::unique_ptr<ScratchFile> make_scratch_file(const std::string& folder);

}  // namespace keel
