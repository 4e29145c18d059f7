#include "keel/dist/checkpoint/parallel_reads.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/visibility.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

constexpr std::size_t kOpenFiles = 4;

class Reads {
 public:
  Reads(std::size_t count, PieceOrder order, const std::function<PieceOfFile(std::size_t)>& piece,
        const std::function<void(std::size_t, std::span<const std::byte>)>& check)
      : count_(count), order_(order), piece_(piece), check_(check) {}

  // One thread's part: reads the next piece, and waits until it was used.
  void read() noexcept {
    std::vector<std::byte> bytes;
    for (;;) {
      std::size_t index = 0;
      {
        const std::lock_guard lock(mutex_);
        if (next_ == count_ || failure_) break;
        index = next_++;
      }
      try {
        const PieceOfFile piece = piece_(index);
        bytes.resize(piece.bytes);
        open(piece.path)->read(piece.offset, bytes);
        check_(index, bytes);
      } catch (...) {
        fail(std::current_exception());
        break;
      }
      std::unique_lock lock(mutex_);
      Piece mine{index, bytes};
      ready_.push_back(&mine);
      changed_.notify_all();
      changed_.wait(lock, [&] { return mine.is_used; });
    }
    const std::lock_guard lock(mutex_);
    --readers_;
    changed_.notify_all();
  }

  // The caller's part.
  void use(int readers, const std::function<void(std::size_t, std::span<const std::byte>)>& use) {
    {
      const std::lock_guard lock(mutex_);
      readers_ += readers;
    }
    for (std::size_t used = 0;; ++used) {
      std::unique_lock lock(mutex_);
      auto found = ready_.end();
      changed_.wait(lock, [&] {
        found = std::find_if(ready_.begin(), ready_.end(), [&](const Piece* piece) {
          return order_ == PieceOrder::any || failure_ || piece->index == used;
        });
        return found != ready_.end() || readers_ == 0;
      });
      if (found == ready_.end()) break;
      Piece& piece = **found;
      ready_.erase(found);
      const bool is_wanted = !failure_;
      lock.unlock();
      try {
        if (is_wanted) use(piece.index, piece.bytes);
      } catch (...) { fail(std::current_exception()); }
      lock.lock();
      piece.is_used = true;
      changed_.notify_all();
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Piece {
    std::size_t index;
    std::span<const std::byte> bytes;
    bool is_used = false;
  };

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }

  // Pieces come in the order of files, so that the latest few are enough.
  std::shared_ptr<const InputFile> open(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    for (const std::shared_ptr<const InputFile>& file : open_)
      if (file->path() == path) return file;
    if (open_.size() == kOpenFiles) open_.pop_front();
    return open_.emplace_back(open_when_visible(path));
  }

  const std::size_t count_;
  const PieceOrder order_;
  const std::function<PieceOfFile(std::size_t)>& piece_;
  const std::function<void(std::size_t, std::span<const std::byte>)>& check_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  int readers_ = 0;
  std::deque<Piece*> ready_;
  std::exception_ptr failure_;
  std::deque<std::shared_ptr<const InputFile>> open_;
};

}  // namespace

void read_pieces(std::size_t count, int threads, PieceOrder order, const std::function<PieceOfFile(std::size_t)>& piece,
                 const std::function<void(std::size_t, std::span<const std::byte>)>& check,
                 const std::function<void(std::size_t, std::span<const std::byte>)>& use) {
  const int readers = static_cast<int>(std::min<std::size_t>(count, static_cast<std::size_t>(threads)));
  Reads reads(count, order, piece, check);
  std::vector<std::thread> others;
  std::exception_ptr failure;
  try {
    try {
      for (int i = 0; i < readers; ++i) others.emplace_back([&] { reads.read(); });
    } catch (const std::system_error&) {  // no more threads: those that there are do it
      if (others.empty()) throw;
    }
    reads.use(static_cast<int>(others.size()), use);
  } catch (...) { failure = std::current_exception(); }
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace keel
