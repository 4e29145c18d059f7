#include "keel/runtime/page_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::int64_t kPageAlignment = 4096;  // of pages in the file, and of buffers

constexpr std::int64_t round_up(std::int64_t count, std::int64_t unit) { return (count + unit - 1) / unit * unit; }

}  // namespace

struct PageWork::State {
  std::mutex mutex;
  std::condition_variable arrived;
  std::int64_t left = 0;  // blocks
  // The first one. Whoever waits throws an Error of its own, which no thread of the file shares.
  std::optional<std::pair<std::string, ErrorKind>> failure;

  void fail(std::string what, ErrorKind kind) {
    const std::lock_guard lock(mutex);
    if (!failure) failure.emplace(std::move(what), kind);
  }
  void end_block() {
    const std::lock_guard lock(mutex);
    if (--left == 0) arrived.notify_all();
  }
};

void PageWork::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->arrived.wait(lock, [&] { return state_->left == 0; });
  if (state_->failure) throw Error(state_->failure->first, state_->failure->second);
}

// Of one thread: a block at an address that a file may ask for.
class PageFile::Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : memory_(bytes == 0 ? nullptr : static_cast<std::byte*>(std::aligned_alloc(kPageAlignment, bytes)), &std::free),
        bytes_(bytes) {
    if (bytes > 0 && !memory_) throw std::bad_alloc();
  }
  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::size_t bytes_;
};

PageFile::PageFile(std::unique_ptr<ScratchFile> file, int threads) : file_(std::move(file)) {
  KEEL_CHECK(threads >= 1, "pages need a thread to move them, got ", threads);
  KEEL_CHECK(kPageAlignment % static_cast<std::int64_t>(file_->alignment()) == 0, "pages begin at multiples of ",
             kPageAlignment, " bytes, and the file asks for multiples of ", file_->alignment());
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

PageFile::~PageFile() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::int64_t PageFile::buffers() const {
  return file_->alignment() == 1 ? 0 : static_cast<std::int64_t>(threads_.size()) * kBlock;
}

std::int64_t PageFile::room_of(std::int64_t bytes) { return round_up(bytes, kPageAlignment); }

void PageFile::reserve(std::int64_t bytes) {
  if (bytes <= 0) return;
  file_->reserve(static_cast<std::uint64_t>(reserved_), static_cast<std::uint64_t>(bytes));
  reserved_ += bytes;
}

std::size_t PageFile::add(std::string name, std::int64_t bytes) {
  const std::int64_t room = room_of(bytes);
  reserve(size_ + room - reserved_);
  const auto blocks = static_cast<std::size_t>((bytes + kBlock - 1) / kBlock);
  pages_.push_back({std::move(name), size_, bytes, std::vector<Hash128>(blocks)});
  size_ += room;
  return pages_.size() - 1;
}

PageWork PageFile::read(std::size_t page, std::byte* to) {
  read_ += pages_[page].bytes;
  return begin(Kind::read, page, to);
}

PageWork PageFile::write(std::size_t page, const std::byte* from) {
  written_ += pages_[page].bytes;
  return begin(Kind::write, page, const_cast<std::byte*>(from));
}

PageWork PageFile::write_changed(std::size_t page, const std::byte* from) {
  return begin(Kind::write_changed, page, const_cast<std::byte*>(from));
}

PageWork PageFile::begin(Kind kind, std::size_t page, std::byte* memory) {
  PageWork work;
  const auto blocks = static_cast<std::int64_t>(pages_[page].hashes.size());
  if (blocks == 0) return work;
  work.state_ = std::make_shared<PageWork::State>();
  work.state_->left = blocks;
  {
    const std::lock_guard lock(mutex_);
    for (std::int64_t block = 0; block < blocks; ++block)
      jobs_.push_back({kind, &pages_[page], block, memory + block * kBlock, work.state_});
  }
  asked_.notify_all();
  return work;
}

void PageFile::serve() {
  const bool needs_buffer = file_->alignment() > 1;
  std::unique_ptr<Buffer> buffer;
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      if (!buffer) buffer = std::make_unique<Buffer>(needs_buffer ? kBlock : 0);
      run(job, *buffer);
    } catch (const Error& error) { job.work->fail(error.what(), error.kind()); } catch (const std::exception& error) {
      job.work->fail(concat("pages: ", error.what()), ErrorKind::io);
    }
    job.work->end_block();
  }
}

void PageFile::run(const Job& job, Buffer& buffer) {
  if (job.kind == Kind::read) read_block(job, buffer.bytes());
  else write_block(job, buffer.bytes());
}

// Whether these bytes may go to the file and come from it as they lie.
bool PageFile::fits_file(std::span<const std::byte> bytes) const {
  const std::size_t alignment = file_->alignment();
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0 && bytes.size() % alignment == 0;
}

void PageFile::read_block(const Job& job, std::span<std::byte> buffer) {
  const Page& page = *job.page;
  const std::int64_t at = job.block * kBlock, count = std::min(kBlock, page.bytes - at);
  const std::span<std::byte> target(job.memory, static_cast<std::size_t>(count));
  const auto place = static_cast<std::uint64_t>(page.offset + at);
  if (fits_file(target)) {
    file_->read(place, target);
  } else {
    file_->read(place, buffer.first(static_cast<std::size_t>(room_of(count))));
    std::memcpy(target.data(), buffer.data(), target.size());
  }
  if (xxh3(target) == page.hashes[static_cast<std::size_t>(job.block)]) return;
  throw Error(concat("the numbers of ", page.name, " in a file in '", file_->folder(), "' have changed: ", count,
                     " bytes from ", place, " on are not those that were written"),
              ErrorKind::io);
}

void PageFile::write_block(const Job& job, std::span<std::byte> buffer) {
  Page& page = *job.page;
  const std::int64_t at = job.block * kBlock, count = std::min(kBlock, page.bytes - at);
  const std::span<const std::byte> source(job.memory, static_cast<std::size_t>(count));
  Hash128& hash = page.hashes[static_cast<std::size_t>(job.block)];
  const Hash128 now = xxh3(source);
  if (job.kind == Kind::write_changed) {
    if (now == hash) return;
    written_ += count;
  }
  const auto place = static_cast<std::uint64_t>(page.offset + at);
  if (fits_file(source)) {
    file_->write(place, source);
  } else {
    const std::span<std::byte> whole = buffer.first(static_cast<std::size_t>(room_of(count)));
    std::memcpy(whole.data(), source.data(), source.size());
    std::fill(whole.begin() + count, whole.end(), std::byte{0});
    file_->write(place, whole);
  }
  hash = now;
}

}  // namespace keel
