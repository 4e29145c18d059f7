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

std::size_t PageFile::add(std::string name, std::int64_t bytes, std::int64_t block) {
  KEEL_CHECK(block > 0 && block <= kBlock && block % kPageAlignment == 0, "a page is moved by whole sectors, up to ",
             kBlock, " bytes at a time, got ", block);
  const std::int64_t room = room_of(bytes);
  reserve(size_ + room - reserved_);
  const auto blocks = static_cast<std::size_t>((bytes + block - 1) / block);
  pages_.push_back({std::move(name), size_, bytes, block, std::vector<Hash128>(blocks)});
  size_ += room;
  return pages_.size() - 1;
}

PageWork PageFile::read(std::size_t page, PagePart part, std::byte* to) {
  read_ += part.bytes;
  return begin(Kind::read, page, part, to);
}

PageWork PageFile::write(std::size_t page, PagePart part, const std::byte* from) {
  written_ += part.bytes;
  return begin(Kind::write, page, part, const_cast<std::byte*>(from));
}

PageWork PageFile::write_changed(std::size_t page, const std::byte* from) {
  return begin(Kind::write_changed, page, all_of(page), const_cast<std::byte*>(from));
}

PageWork PageFile::begin(Kind kind, std::size_t number, PagePart part, std::byte* memory) {
  Page& page = pages_[number];
  const std::int64_t end = part.begin + part.bytes;
  const bool ends_well = end == page.bytes || (end < page.bytes && end % page.block == 0);
  if (part.begin < 0 || part.bytes < 0 || part.begin % page.block != 0 || !ends_well)
    throw Error(concat("bytes ", part.begin, " to ", end, " of ", page.name, " are not whole blocks of ", page.block),
                ErrorKind::internal);
  PageWork work;
  if (part.bytes == 0) return work;
  const std::int64_t first = part.begin / page.block, last = (end - 1) / page.block;
  work.state_ = std::make_shared<PageWork::State>();
  work.state_->left = last - first + 1;
  {
    const std::lock_guard lock(mutex_);
    std::deque<Job>& jobs = kind == Kind::read ? reads_ : writes_;
    for (std::int64_t block = first; block <= last; ++block)
      jobs.push_back({kind, &page, block, memory + (block - first) * page.block, work.state_});
  }
  asked_.notify_all();
  return work;
}

// Under the lock, where there is one.
PageFile::Job PageFile::take_next() {
  const bool writes = !writes_.empty() && (turn_of_writes_ || reads_.empty());
  turn_of_writes_ = !writes;
  std::deque<Job>& jobs = writes ? writes_ : reads_;
  Job job = std::move(jobs.front());
  jobs.pop_front();
  return job;
}

void PageFile::serve() {
  const bool needs_buffer = file_->alignment() > 1;
  std::unique_ptr<Buffer> buffer;
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [this] { return !reads_.empty() || !writes_.empty(); };
      asked_.wait(lock, [&] { return ends_ || has_work(); });
      if (!has_work()) return;
      job = take_next();
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
  const std::int64_t at = job.block * page.block, count = std::min(page.block, page.bytes - at);
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
  const std::int64_t at = job.block * page.block, count = std::min(page.block, page.bytes - at);
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
