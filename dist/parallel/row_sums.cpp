#include "keel/dist/parallel/row_sums.h"

#include <algorithm>
#include <string>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/embedding.h"
#include "keel/runtime/stopwatch.h"

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

}  // namespace

RowSums::RowSums(const RowGradient& own, DType wire, Communicator& ranks, const UnitSite& site)
    : own_(own), wire_(wire), ranks_(ranks), site_(site) {
  const Context& context = own.values().context();
  own_count_ = from_values(context, std::vector<std::int64_t>{own.count()}, {1}, Purpose::bucket);
  counts_ = gathered(own_count_, ranks.size());
  counting_ = ranks.all_gather(own_count_, counts_, site.subject());
}

void RowSums::wait(const Work& work) {
  const Stopwatch watch(site_.times.waited_ms);
  work.wait();
}

void RowSums::proceed() {
  if (most_ >= 0) return;
  wait(counting_);
  rows_of_rank_ = counts_.to_vector<std::int64_t>();
  most_ = *std::max_element(rows_of_rank_.begin(), rows_of_rank_.end());
  if (most_ == 0) return;
  const Context& context = own_.values().context();
  own_indices_ = filled_up(kernels::to(own_.indices(), context, Purpose::bucket), most_);
  own_values_ = filled_up(kernels::cast(own_.values(), wire_), most_);
  indices_ = gathered(own_indices_, ranks_.size());
  values_ = gathered(own_values_, ranks_.size());
  sending_[0] = ranks_.all_gather(own_indices_, indices_, site_.subject());
  sending_[1] = ranks_.all_gather(own_values_, values_, site_.subject());
}

RowGradient RowSums::finish(Span part) {
  proceed();
  const Context& context = own_.values().context();
  RowGradient sum(context, own_.table(), wire_);
  if (most_ == 0) return sum;
  for (const Work& work : sending_) wait(work);
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

Span rows_of(const FlatBuffer& table, Span elements) {
  const std::int64_t width = std::max<std::int64_t>(table.segments.front().shape[1], 1);
  return {elements.begin / width, elements.end / width};
}

void check_gradients(std::span<const FlatBuffer> layout, const Optimizer& optimizer) {
  for (const FlatBuffer& buffer : layout) {
    if (!buffer.trainable || buffer.sparse == optimizer.requirements().rows) continue;
    const std::string& name = buffer.segments.front().name;
    if (optimizer.requirements().rows)
      throw Error(concat(optimizer.name(), " takes gradients that are kept as rows alone, and that of ", name,
                         " is dense: freeze it, make it an embedding with sparse gradients, or take another optimizer, "
                         "such as Adam"));
    throw Error(concat(optimizer.name(), " takes dense gradients, and that of ", name,
                       " is kept as rows: take SparseAdam, or an embedding with dense gradients (sparse = false)"));
  }
}

}  // namespace keel
