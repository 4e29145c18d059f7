#include "keel/dist/parallel/page.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {

void Pager::borrow(Page& page) {
  if (!std::exchange(page.is_borrowed_, true)) {
    borrowed_.push_back(&page);
    borrowed_bytes_ += page.bytes();
  }
  while (borrowed_bytes_ > budget_) {
    const auto oldest = std::ranges::find_if(borrowed_, [&](const Page* each) { return !is_recent(each->unit()); });
    if (oldest == borrowed_.end()) return;
    (*oldest)->drop();
  }
}

// An operation may read one unit and write another.
bool Pager::is_recent(std::size_t unit) const {
  std::size_t last[2] = {borrowed_.back()->unit(), borrowed_.back()->unit()};
  for (auto each = borrowed_.rbegin(); each != borrowed_.rend() && last[1] == last[0]; ++each)
    last[1] = (*each)->unit();
  return unit == last[0] || unit == last[1];
}

void Pager::take_back() {
  while (!borrowed_.empty()) borrowed_.front()->drop();
}

void Pager::note(std::exception_ptr failure) {
  if (!failure_) failure_ = std::move(failure);
}

void Pager::throw_noted() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Pager::leave(Page& page) {
  page.store();
  if (Page* const before = std::exchange(leaving_, &page); before != nullptr && before != &page) before->settle();
}

void Pager::settle() {
  if (Page* const last = std::exchange(leaving_, nullptr)) last->settle();
}

void Pager::forget(Page& page) noexcept {
  if (!std::exchange(page.is_borrowed_, false)) return;
  borrowed_.remove(&page);
  borrowed_bytes_ -= page.bytes();
}

Page::Page(Pager& pager, const Tensor& numbers, std::string name, std::size_t unit, bool in_file, Purpose purpose)
    : pager_(pager), numbers_(numbers), unit_(unit) {
  KEEL_CHECK(numbers.bytes() == numbers.storage()->bytes(), "a page is all of a storage");
  if (in_file)
    number_ = pager.file().add(
        std::move(name), bytes(),
        std::min(PageFile::kBlock,
                 PageFile::room_of(pager.piece() * static_cast<std::int64_t>(size_of(numbers.dtype())))));
  if (numbers.device().type != DeviceType::cpu)
    on_host_ = empty(numbers.context().host(), numbers.shape(), numbers.dtype(), in_file ? Purpose::bucket : purpose);
  store();
  end_work();
  drop();
  numbers_.storage()->set_elsewhere(this);
}

Page::~Page() {
  pager_.forget(*this);
  if (pager_.leaving_ == this) pager_.leaving_ = nullptr;
  numbers_.storage()->set_touch_hook({});
  numbers_.storage()->set_elsewhere(nullptr);
  try {
    work_.wait();
  } catch (const std::exception&) { return; }  // nobody wants these numbers any more
}

void Page::watch() {
  numbers_.storage()->set_touch_hook([this](Storage&) { touched(); });
}

void Page::touched() {
  if (asks_ && asks_()) return;
  fetch();
  end_work();
  may_have_changed_ = true;
  pager_.borrow(*this);
}

void Page::fetch() {
  if (state_ != State::away) return;
  const Tensor& target = on_host_.defined() ? on_host_ : numbers_;
  numbers_.storage()->set_touch_hook({});
  target.storage()->restore();
  if (number_) work_ = pager_.file().read(*number_, target.raw());
  state_ = State::arriving;
  watch();
}

// From the processor's memory to the device's: the same numbers again, which counts as no change.
void Page::bring() {
  if (!on_host_.defined()) return;
  numbers_.storage()->restore();
  transfer(on_host_, numbers_);
  pager_.moved_bytes_ += bytes();
  if (number_) on_host_.storage()->drop();
}

// A page that could not be read is away, and one that could not be written is to be written again.
void Page::end_work() {
  numbers_.storage()->set_touch_hook({});
  const State before = std::exchange(state_, State::here);
  try {
    std::exchange(work_, {}).wait();
    if (before == State::arriving) bring();
    if (before != State::here) version_ = numbers_.storage()->version();
  } catch (...) {
    may_have_changed_ = before == State::leaving;
    if (before == State::arriving) give_memory_back();
    throw;
  }
}

bool Page::wait() try {
  fetch();
  end_work();
  return true;
} catch (const Error&) {
  pager_.note(std::current_exception());
  make();
  return false;
}

void Page::make() {
  if (state_ == State::away) {
    numbers_.storage()->set_touch_hook({});
    numbers_.storage()->restore();
    state_ = State::here;
    version_ = numbers_.storage()->version();
  }
  wait();
}

void Page::read(std::int64_t begin, std::int64_t bytes, const Reader& reader) {
  if (!number_) return reader({sent_.get().raw() + begin, static_cast<std::size_t>(bytes)});
  const std::int64_t block = pager_.file().block_of(*number_), most = pager_.read_at_once(block);
  for (const std::int64_t end = begin + bytes; begin < end;) {
    const std::int64_t first = begin / block * block;
    const PagePart part{first, std::min({most, (end - first + block - 1) / block * block, this->bytes() - first})};
    const Tensor numbers = empty(numbers_.context().host(), {part.bytes}, DType::u8, Purpose::bucket);
    pager_.file().read(*number_, part, numbers.raw()).wait();
    const std::int64_t last = std::min(end, first + part.bytes);
    reader({numbers.raw() + (begin - first), static_cast<std::size_t>(last - begin)});
    begin = last;
  }
}

const Tensor& Page::on_host() {
  drop();
  return sent_.get();
}

void Page::begin_write(bool changed_alone) {
  const std::byte* source = numbers_.raw();
  if (on_host_.defined()) {
    on_host_.storage()->restore();
    HostCopy copy(numbers_, on_host_);
    pager_.moved_bytes_ += bytes();
    if (number_) source = copy.get().raw();
    else sent_ = std::move(copy);
  }
  if (!number_) return;
  work_ = changed_alone ? pager_.file().write_changed(*number_, source) : pager_.file().write(*number_, source);
}

void Page::give_memory_back() {
  state_ = State::away;
  numbers_.storage()->drop();
  if (on_host_.defined() && number_) on_host_.storage()->drop();
  watch();
}

void Page::drop() {
  if (state_ == State::away) return;
  wait();
  if (may_have_changed_) {
    begin_write(/*changed_alone=*/true);
    end_work();
  }
  may_have_changed_ = false;
  pager_.forget(*this);
  give_memory_back();
}

void Page::discard() {
  try {
    end_work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
  }
  may_have_changed_ = false;
  pager_.forget(*this);
  if (state_ != State::away) give_memory_back();
}

void Page::release() {
  may_have_changed_ |= state_ == State::here && numbers_.storage()->version() != version_;
  drop();
}

void Page::store() {
  wait();
  may_have_changed_ = false;
  pager_.forget(*this);
  begin_write(/*changed_alone=*/false);
  state_ = State::leaving;
  watch();
}

void Page::settle() {
  if (state_ == State::leaving && wait()) drop();
}

}  // namespace keel
