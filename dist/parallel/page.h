#pragma once
// Numbers of a rank that lie in a file or in the processor's memory, and where they are used while somebody uses them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "keel/runtime/page_file.h"
#include "keel/runtime/tensor.h"

namespace keel {

class Page;

// The file of a rank's pages, and those pages that somebody touches outside of the order in which an engine uses them:
// a checkpoint that is loaded, averages that take the place of weights. Such users do not say when they are done, so
// that theirs go when others come. Whoever reads numbers once borrows no page: read_once() of keel/runtime/tensor.h.
class Pager {
 public:
  // `budget`: bytes of pages that may be borrowed at a time, of two units at least. `piece`: elements of the pieces in
  // which an update may read and write a page.
  Pager(std::unique_ptr<ScratchFile> file, int threads, std::int64_t budget, std::int64_t piece)
      : budget_(budget), piece_(piece) {
    file_.emplace(std::move(file), threads);
  }
  // For pages in the processor's memory alone.
  Pager(std::int64_t budget, std::int64_t piece) : budget_(budget), piece_(piece) {}

  PageFile& file() { return *file_; }
  std::int64_t piece() const { return piece_; }
  // Bytes that one who reads a page once has of it at a time, in blocks of the file of so many bytes: half the budget
  // at most, or one block.
  std::int64_t read_at_once(std::int64_t block) const {
    return std::max(block, std::min(budget_ / 2, kReadAtOnce) / block * block);
  }
  PageTraffic file_traffic() const { return file_ ? file_->traffic() : PageTraffic{}; }
  std::int64_t file_bytes() const { return file_ ? file_->size() : 0; }
  // Bytes that were copied between a device and the processor.
  std::int64_t moved_bytes() const { return moved_bytes_; }

  // Somebody has touched a page, of a unit that is used as a whole. Pages of other units may go.
  void borrow(Page& page);
  // All that were borrowed go.
  void take_back();

  // What a file has failed in is noted, so that a pass goes on as the other ranks' do, and thrown where all agree on
  // it: the first failure, once.
  void note(std::exception_ptr failure);
  void throw_noted();

  // Begins to write a page, and waits until the one before it is written. Pages leave one behind the other, so that two
  // are in memory at most.
  void leave(Page& page);
  void settle();  // until the last one is written

 private:
  friend class Page;
  static constexpr std::int64_t kReadAtOnce = std::int64_t{16} << 20;

  void forget(Page& page) noexcept;
  bool is_recent(std::size_t unit) const;

  std::optional<PageFile> file_;
  std::int64_t budget_, piece_, borrowed_bytes_ = 0, moved_bytes_ = 0;
  std::list<Page*> borrowed_;  // in the order in which they were touched first
  Page* leaving_ = nullptr;
  std::exception_ptr failure_;
};

// One storage. From a device's memory numbers go to their file through that of the processor. Its user asks for it
// ahead by fetch(), has it from wait() on, and gives it back by drop() or, where it has changed, by store() and
// settle(). Whoever else touches the storage borrows it, and gets failures of the file as they are; the pager notes
// those of its user.
class Page : public Elsewhere {
 public:
  // Brings the numbers of this tensor, which is all of its storage, to where they lie, and gives the memory back.
  // `name` stands in messages; pages of one `unit` are used together. What a device's page has in the processor's
  // memory counts there as `purpose`, unless it lies in a file. The pager must outlive the page.
  Page(Pager& pager, const Tensor& numbers, std::string name, std::size_t unit, bool in_file = true,
       Purpose purpose = Purpose::parameter);
  ~Page() override;
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  const Tensor& numbers() const { return numbers_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(numbers_.bytes()); }
  std::size_t unit() const { return unit_; }
  bool is_away() const { return state_ == State::away; }
  bool has_numbers() const override { return is_away(); }
  // From the file in pieces of Pager::read_at_once() at most.
  void read(std::int64_t begin, std::int64_t bytes, const Reader& reader) override;
  bool is_in_file() const { return number_.has_value(); }
  // Of a device's numbers that lie in the processor's memory, what lies there; waits until they have come.
  const Tensor& on_host();

  void fetch();  // begins to read; nothing where it is in memory
  // Until it is there; after fetch() or without. False: the file has failed, and the memory has no numbers.
  bool wait();
  void make();     // memory whose numbers will all be written
  void drop();     // the memory goes; what borrowers have changed is written first
  void discard();  // the memory goes, of numbers that nobody reads any more: nothing is written, nor what failed told
  void release();  // the same, and what operations have changed while its user had it is written, too
  void store();    // begins to write the numbers, which nobody changes until settle()
  void settle();   // the memory goes when they are written, and stays where they cannot be; nothing without store()
  // Called where somebody touches the storage while it is away. Where it returns true, its user has asked for the page.
  void when_touched(std::function<bool()> asks) { asks_ = std::move(asks); }

 private:
  friend class Pager;
  friend class PagePiece;
  enum class State : unsigned char { away, arriving, here, leaving };

  void touched();
  void watch();
  void end_work();
  void bring();
  void begin_write(bool changed_alone);
  void give_memory_back();

  Pager& pager_;
  Tensor numbers_, on_host_;  // the same in the processor's memory, where they are used on a device
  std::size_t unit_;
  std::optional<std::size_t> number_;  // in the file
  State state_ = State::here;
  bool may_have_changed_ = false;  // since it was read or written
  std::uint64_t version_ = 0;      // of the storage, when its user got it
  bool is_borrowed_ = false;
  HostCopy sent_;  // to on_host_, where nothing lies in a file
  PageWork work_;
  std::function<bool()> asks_;
};

}  // namespace keel
