#pragma once
// Sums over ranks of gradients that are kept as rows.
//
// Ranks tell each other how many rows each has. Then all send all their rows, indices and values, padded to the largest
// number of rows. Every rank adds up the rows that it updates, in the order of ranks, in fp32, and rounds once to the
// wire dtype. So the bytes follow from what was looked up and not from the size of the table, and all stages have the
// same bits, since they do the same. (Whole gradients and a mask of their rows would need the memory of the table.)

#include <cstdint>
#include <span>
#include <vector>

#include "keel/autograd/row_gradient.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/engine_site.h"
#include "keel/nn/flat_buffer.h"
#include "keel/optim/optimizer.h"

namespace keel {

// One sum: three all-gathers. By the algorithm `direct`, each of n ranks sends (n - 1) (8 + r (8 + w b)) bytes, where
// r is the most rows that a rank has, w a row's numbers, and b their bytes on the wire.
class RowSums {
 public:
  // Tells the others how many rows there are. The site must outlive it.
  RowSums(const RowGradient& own, DType wire, Communicator& ranks, const UnitSite& site);
  // Sends the rows, once all ranks have told their numbers. Every rank calls it at the same point of its collectives; a
  // second call does nothing.
  void proceed();
  // The rows [part.begin, part.end) of the summed table, in the wire dtype.
  RowGradient finish(Span part);

 private:
  void wait(const Work& work);

  RowGradient own_;
  DType wire_;
  Communicator& ranks_;
  const UnitSite& site_;
  Tensor own_count_, counts_;     // i64 (1), (ranks)
  Tensor own_indices_, indices_;  // i64 (most), (ranks * most)
  Tensor own_values_, values_;    // (most, width), (ranks * most, width)
  Work counting_, sending_[2];
  std::int64_t most_ = -1;  // rows of a rank
  std::vector<std::int64_t> rows_of_rank_;
};

// The rows of a table, which is a unit of its own, that have these elements.
Span rows_of(const FlatBuffer& table, Span elements);

// Throws an Error that names the first parameter whose gradient the optimizer does not take, because it is kept as
// rows, or because it is not.
void check_gradients(std::span<const FlatBuffer> layout, const Optimizer& optimizer);

}  // namespace keel
