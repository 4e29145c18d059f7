#pragma once
// A piece of a page's numbers in memory of its own, while the page is away: so an update needs no page whole.

#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/page.h"

namespace keel {

// Of a page in a file, in the processor's memory, be the page's numbers there or on a device. Failures of the file go
// to the page's pager.
class PagePiece {
 public:
  // Begins to read these elements. They begin at a multiple of Pager::piece(), and end at one or with the page.
  PagePiece(Page& page, Span elements);
  ~PagePiece();
  PagePiece(const PagePiece&) = delete;
  PagePiece& operator=(const PagePiece&) = delete;

  const Tensor& numbers() const { return numbers_; }
  bool wait();   // until they are read, or written; false: the file has failed
  void store();  // begins to write them

 private:
  PagePart part() const;

  Page& page_;
  Span elements_;
  Tensor numbers_;
  PageWork work_;
};

}  // namespace keel
