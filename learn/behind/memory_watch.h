#pragma once
// What the threads of a warp ask of memory together: sectors of global memory, and banks of the shared one.

#include <cstdint>
#include <map>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "learn/behind/cuda.h"

namespace learn {

// Counts while it lives. A warp's k-th accesses by one place in the source count as made together. It is
// slow: for launches of some thousand accesses.
class MemoryWatch {
 public:
  MemoryWatch() { watch_memory(this); }
  ~MemoryWatch() { watch_memory(nullptr); }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Ends the law where a line's warps touch over 1.5 times the sectors of 32 bytes that the same numbers
  // would fill side by side.
  void expect_coalesced(std::string_view why) const;
  // Ends the law where the threads of a warp want several words of one bank at a time.
  void expect_no_bank_conflicts(std::string_view why) const;
  // The most elements of global memory that one thread has read.
  std::int64_t most_reads_of_a_thread() const;
  bool used_shared_memory() const { return !shared_.empty(); }

  void note_global(const GlobalArray& array, const Index& index, bool write, std::uint32_t block,
                   std::uint32_t thread);
  void note_shared(const void* address, const char* name, const std::source_location& where,
                   std::uint32_t block, std::uint32_t thread);

 private:
  // A place in the source, and the array that it uses there.
  struct Place {
    std::string file, name;
    std::uint32_t line, column;
    bool write;
    auto operator<=>(const Place&) const = default;
  };
  // Which of a warp's accesses it is.
  struct Turn {
    std::uint32_t block, warp, number;
    auto operator<=>(const Turn&) const = default;
  };
  using Thread = std::pair<std::uint32_t, std::uint32_t>;  // block, thread
  struct Accesses {
    std::map<Turn, std::set<std::int64_t>> addresses;
    std::map<Thread, std::uint32_t> counts;
    std::int64_t bytes = 0;  // of an element
    void note(const Thread& thread, std::int64_t address);
  };

  std::map<Place, Accesses> global_, shared_;
  std::map<Thread, std::int64_t> reads_;
};

}  // namespace learn
