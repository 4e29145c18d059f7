#include "keel/dist/parallel/page_piece.h"

#include <utility>

#include "keel/runtime/error.h"

namespace keel {

PagePiece::PagePiece(Page& page, Span elements) : page_(page), elements_(elements) {
  page.drop();
  numbers_ = empty(page.numbers_.context().host(), {elements.count()}, page.numbers_.dtype(), Purpose::bucket);
  work_ = page.pager_.file().read(*page.number_, part(), numbers_.raw());
}

PagePiece::~PagePiece() {
  try {
    work_.wait();
  } catch (const std::exception&) { return; }  // nobody wants these numbers any more
}

PagePart PagePiece::part() const {
  const auto width = static_cast<std::int64_t>(size_of(numbers_.dtype()));
  return {elements_.begin * width, elements_.count() * width};
}

bool PagePiece::wait() try {
  std::exchange(work_, {}).wait();
  return true;
} catch (const Error&) {
  page_.pager_.note(std::current_exception());
  return false;
}

void PagePiece::store() { work_ = page_.pager_.file().write(*page_.number_, part(), numbers_.raw()); }

}  // namespace keel
