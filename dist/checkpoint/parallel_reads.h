#pragma once
// Pieces of files, read by several threads and used by the caller's.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "keel/runtime/language.h"

namespace keel {

struct PieceOfFile {
  std::string path;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

enum class PieceOrder : unsigned char { any, ascending };

// Calls `check` for every piece in the thread that has read it, and then `use` in the calling thread, one at a time.
// The bytes are gone when `use` returns. Pieces of a file should follow each other: few files are open at a time. The
// first Error of any of these is thrown, and no more is read then. Memory: one piece for each thread.
void read_pieces(std::size_t count, int threads, PieceOrder order, const std::function<PieceOfFile(std::size_t)>& piece,
                 const std::function<void(std::size_t, std::span<const std::byte>)>& check,
                 const std::function<void(std::size_t, std::span<const std::byte>)>& use);

}  // namespace keel
