#pragma once
// The shared memory of an emulated block: an arena of NaN with guarded arrays, and a record of who touched what.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace keel::emulation {

// Threads count from 0 within the block. Two accesses are ordered when a block barrier lies between them, or when
// both threads are of one warp and that warp did something together in between.
struct Access {
  std::uint32_t thread = 0, block_epoch = 0, warp_epoch = 0;
  std::uint32_t line = 0;  // in the source; 0: none yet
  const char* file = nullptr;
};

class SharedMemory {
 public:
  static constexpr std::size_t kStaticLimit = std::size_t{48} << 10;  // bytes, of all CUDA devices

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // A new block begins: everything is NaN again, and nothing was touched.
  void begin_block(std::size_t dynamic_bytes, bool check_races);
  // Throws when something wrote between the arrays.
  void check_guards() const;

  // The array that belongs to `key`, made on first call in a block. The dynamic array has the key null.
  std::byte* array(const void* key, std::size_t bytes);
  std::size_t dynamic_bytes() const { return dynamic_bytes_; }
  // Whether these bytes lie inside one array.
  bool holds(const std::byte* address, std::size_t bytes) const;

  // Notes an access; returns the earlier one that it races with, if any.
  std::optional<Access> touch(const std::byte* address, std::size_t bytes, bool write, const Access& access);

 private:
  struct Array {
    const void* key;
    std::size_t offset, bytes;
  };
  struct Cell {  // of two bytes
    Access writer, readers[2];
  };
  std::byte* add_array(const void* key, std::size_t bytes);

  std::vector<std::byte> bytes_;
  std::vector<Cell> cells_;
  std::vector<Array> arrays_;
  std::size_t used_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0;
  bool check_races_ = true;
};

}  // namespace keel::emulation
