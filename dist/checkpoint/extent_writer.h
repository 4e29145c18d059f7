#pragma once
// A rank's parts of tensors, written as one safetensors file in large pieces that are hashed on the way.

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/manifest.h"

namespace keel {

// What goes into one file.
struct Section {
  std::string name;        // as in StoredTensor
  std::string file;        // "model-2-of-4.safetensors"
  TensorParts parts;       // dense, on the processor or on a device
  Metadata metadata = {};  // of the file, for other programs
};

// Where a section's bytes go, from the first to the last.
class SectionTarget {
 public:
  virtual ~SectionTarget() = default;
  // Appends the bytes, and adds them to the hash.
  virtual void write(std::span<const std::byte> bytes, Xxh3& hash) = 0;
  // All has been written.
  virtual void commit() = 0;
};

// Writes the section's file, of so many bytes, to where `open` says, and returns what it holds; a section without
// numbers opens nothing. Any thread may call it; nobody may write the parts meanwhile. Where `cancelled` is raised it
// ends soon, by an Error.
Manifest write_section(const Section& section,
                       const std::function<std::unique_ptr<SectionTarget>(std::uint64_t bytes)>& open,
                       const std::atomic<bool>& cancelled);

// Writes the section's file into a folder, flushes it to the disk, and returns what it holds, in the same way. An Error
// leaves no file.
Manifest write_section(const std::string& folder, const Section& section, const std::atomic<bool>& cancelled);

}  // namespace keel
