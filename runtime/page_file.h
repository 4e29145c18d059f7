#pragma once
// Pages of numbers in a file, read and written by threads of its own, each block of them with a hash.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "keel/runtime/scratch_file.h"
#include "keel/runtime/xxh3.h"

namespace keel {

// A page on its way. Copies share it; an empty one has arrived.
class PageWork {
 public:
  PageWork() = default;
  // Blocks until all of the page was moved. Throws the first failure, every time.
  void wait() const;

 private:
  friend class PageFile;
  struct State;
  std::shared_ptr<State> state_;
};

// Bytes of pages; what fills the last sector of one does not count.
struct PageTraffic {
  std::int64_t read = 0, written = 0;
};

// A part of a page, in bytes. It begins at a block, and ends at one or with the page.
struct PagePart {
  std::int64_t begin = 0, bytes = 0;
};

// Pages may lie anywhere in memory: blocks that are not where the file asks for them go through aligned buffers of the
// threads. A block that is read with another hash than it was written with is an Error of kind io that names page,
// place and folder. Reads and writes that wait for a thread take turns. Pages are asked for by one thread at a time; a
// part of a page is not asked for while it is on its way.
class PageFile {
 public:
  static constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // bytes of the largest

  PageFile(std::unique_ptr<ScratchFile> file, int threads);
  ~PageFile();  // when everything on its way has arrived
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  const ScratchFile& file() const { return *file_; }
  // Bytes of memory for buffers of the threads.
  std::int64_t buffers() const;
  // Room for pages that take so many bytes, by room_of(). Errors of ScratchFile::reserve().
  void reserve(std::int64_t bytes);
  // Adds a page, which `name` stands for in messages; its number. There is room for it, or it is reserved. `block`:
  // bytes that are moved at a time and have a hash; whole sectors.
  std::size_t add(std::string name, std::int64_t bytes, std::int64_t block = kBlock);
  // What the file takes: pages begin at whole sectors.
  std::int64_t size() const { return size_; }
  static std::int64_t room_of(std::int64_t bytes);
  std::int64_t block_of(std::size_t page) const { return pages_[page].block; }

  // The memory stays as it is until the work has arrived. A page was written once before it is read.
  PageWork read(std::size_t page, std::byte* to) { return read(page, all_of(page), to); }
  PageWork write(std::size_t page, const std::byte* from) { return write(page, all_of(page), from); }
  PageWork read(std::size_t page, PagePart part, std::byte* to);
  PageWork write(std::size_t page, PagePart part, const std::byte* from);
  // Of the blocks, those alone whose hash is another one than when they were written.
  PageWork write_changed(std::size_t page, const std::byte* from);

  PageTraffic traffic() const { return {read_, written_}; }

 private:
  enum class Kind : unsigned char { read, write, write_changed };
  struct Page {
    std::string name;
    std::int64_t offset, bytes, block;
    std::vector<Hash128> hashes;  // by block
  };
  struct Job {
    Kind kind;
    Page* page;
    std::int64_t block;
    std::byte* memory;  // of the block; only read where it is written to the file
    std::shared_ptr<PageWork::State> work;
  };
  class Buffer;

  PagePart all_of(std::size_t page) const { return {0, pages_[page].bytes}; }
  PageWork begin(Kind kind, std::size_t page, PagePart part, std::byte* memory);
  Job take_next();
  void serve();
  void run(const Job& job, Buffer& buffer);
  bool fits_file(std::span<const std::byte> bytes) const;
  void read_block(const Job& job, std::span<std::byte> buffer);
  void write_block(const Job& job, std::span<std::byte> buffer);

  std::unique_ptr<ScratchFile> file_;
  std::deque<Page> pages_;  // which stay where they are
  std::int64_t size_ = 0, reserved_ = 0;
  std::atomic<std::int64_t> read_ = 0, written_ = 0;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<Job> reads_, writes_;
  bool turn_of_writes_ = false, ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace keel
