// The gradient of a table, kept as rows: no memory for the whole one.
//
// Ranks tell each other how many rows each has. Then all send all their rows, indices and values, padded to the largest
// number of rows. Every rank adds up the rows that it updates, in the order of ranks, in fp32, and rounds once to the
// wire dtype. So the bytes follow from what was looked up and not from the size of the table, and all stages have the
// same bits, since they do the same. (Whole gradients and a mask of their rows would need the memory of the table.)

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "keel/dist/parallel/unit_gradient.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/embedding.h"

namespace keel {
namespace {

// A tensor of `rows` rows that begins with those of `from`; what is in the others does not matter.
Tensor filled_up(const Tensor& from, std::int64_t rows) {
  Dims shape = from.shape();
  const std::int64_t count = std::exchange(shape[0], rows);
  const Tensor wider = empty(from.context(), shape, from.dtype(), Purpose::bucket);
  if (count > 0) kernels::copy_into(wider.slice(0, 0, count), from);
  if (count < rows) kernels::fill(wider.slice(0, count, rows), 0);
  return wider;
}

Tensor gathered(const Tensor& own, int ranks) {
  Dims shape = own.shape();
  shape[0] *= ranks;
  return empty(own.context(), shape, own.dtype(), Purpose::bucket);
}

// One sum: three all-gathers. By the algorithm `direct`, each of n ranks sends (n - 1) (8 + r (8 + w b)) bytes, where
// r is the most rows that a rank has, w a row's numbers, and b their bytes on the wire.
class RowSums {
 public:
  // Tells the others how many rows there are. The unit must outlive it.
  RowSums(const RowGradient& own, Communicator& ranks, const UnitSite& unit) : own_(own), ranks_(ranks), unit_(unit) {
    const Context& context = own.values().context();
    own_count_ = from_values(context, std::vector<std::int64_t>{own.count()}, {1}, Purpose::bucket);
    counts_ = gathered(own_count_, ranks.size());
    counting_ = ranks.all_gather(own_count_, counts_, unit.subject());
  }

  // Sends the rows, once all ranks have told their numbers. Every rank calls it at the same point of its collectives; a
  // second call does nothing.
  void proceed() {
    if (most_ >= 0) return;
    unit_.times.wait(counting_);
    rows_of_rank_ = counts_.to_vector<std::int64_t>();
    most_ = *std::max_element(rows_of_rank_.begin(), rows_of_rank_.end());
    if (most_ == 0) return;
    const Context& context = own_.values().context();
    own_indices_ = filled_up(kernels::to(own_.indices(), context, Purpose::bucket), most_);
    own_values_ = filled_up(kernels::cast(own_.values(), unit_.split.wire), most_);
    indices_ = gathered(own_indices_, ranks_.size());
    values_ = gathered(own_values_, ranks_.size());
    sending_[0] = ranks_.all_gather(own_indices_, indices_, unit_.subject());
    sending_[1] = ranks_.all_gather(own_values_, values_, unit_.subject());
  }

  // The rows [part.begin, part.end) of the summed table, in the wire dtype.
  RowGradient finish(Span part) {
    proceed();
    const Context& context = own_.values().context();
    RowGradient sum(context, own_.table(), unit_.split.wire);
    if (most_ == 0) return sum;
    for (Work& work : sending_) unit_.times.wait(work);
    const std::vector<std::int64_t> indices = indices_.to_vector<std::int64_t>();
    std::vector<std::int64_t> ids, places;
    for (std::size_t rank = 0; rank < rows_of_rank_.size(); ++rank)
      for (std::int64_t i = 0; i < rows_of_rank_[rank]; ++i) {
        const std::int64_t place = static_cast<std::int64_t>(rank) * most_ + i;
        const std::int64_t id = indices[static_cast<std::size_t>(place)];
        if (id < part.begin || id >= part.end) continue;
        ids.push_back(id);
        places.push_back(place);
      }
    const Dims count = {static_cast<std::int64_t>(ids.size())};
    if (!ids.empty())
      sum.add(from_values(context.host(), ids, count, Purpose::bucket),
              kernels::embedding(values_, from_values(context, places, count, Purpose::bucket)));
    return sum;
  }

 private:
  RowGradient own_;
  Communicator& ranks_;
  const UnitSite& unit_;
  Tensor own_count_, counts_;     // i64 (1), (ranks)
  Tensor own_indices_, indices_;  // i64 (most), (ranks * most)
  Tensor own_values_, values_;    // (most, width), (ranks * most, width)
  Work counting_, sending_[2];
  std::int64_t most_ = -1;  // rows of a rank
  std::vector<std::int64_t> rows_of_rank_;
};

class RowsGradient : public UnitGradient {
 public:
  explicit RowsGradient(const UnitSite& unit) : unit_(unit), owned_(rows_of(unit.buffer, unit.split.owned)) {
    unit.buffer.row_dtype = unit.split.gradient;
  }

  void begin_reduce(double) override {
    unit_.buffer.complete_gradient();
    const RowGradient& rows = unit_.buffer.segments.front().parameter->variable.leaf()->rows;
    if (is_alone()) own_rows_ = rows;
    else sums_.emplace(rows, unit_.axes.shards, unit_);
  }
  void continue_reduce() override {
    if (sums_) sums_->proceed();
  }
  // The sum inside the group, and then across groups.
  void finish_reduce() override {
    if (is_alone()) return;
    RowGradient sum = finish_sum();
    if (unit_.axes.replicas != nullptr) {
      sums_.emplace(sum, *unit_.axes.replicas, unit_);
      sum = finish_sum();
    }
    const RowGradient rows = sum.cast(unit_.buffer.row_dtype);
    if (std::exchange(begun_, true)) own_rows_.add(rows.indices(), rows.values());
    else own_rows_ = rows;
    unit_.buffer.zero_grad();
  }
  void zero() override {
    unit_.buffer.zero_grad();
    own_rows_ = {};
    begun_ = false;
  }

 private:
  bool is_alone() const { return unit_.axes.shards.size() == 1 && unit_.axes.replicas == nullptr; }
  RowGradient finish_sum() {
    RowGradient sum = sums_->finish(owned_);
    sums_.reset();
    return sum;
  }

  const UnitSite& unit_;
  Span owned_;  // rows
  std::optional<RowSums> sums_;
  bool begun_ = false;  // own_rows_ holds a sum of this step
};

}  // namespace

std::unique_ptr<UnitGradient> make_rows_gradient(const UnitSite& unit) { return std::make_unique<RowsGradient>(unit); }

}  // namespace keel
