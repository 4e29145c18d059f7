#include "keel/autograd/row_gradient.h"

#include <algorithm>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/embedding.h"

namespace keel {
namespace {

using Indices = std::vector<std::int64_t>;

Indices read_ids(const Tensor& ids, std::int64_t vocabulary) {
  KEEL_CHECK(ids.defined() && (ids.dtype() == DType::i32 || ids.dtype() == DType::i64),
             "rows of a gradient: ids must be i32 or i64, got ", ids);
  Indices read;
  if (ids.dtype() == DType::i64) {
    read = ids.to_vector<std::int64_t>();
  } else {
    const std::vector<std::int32_t> narrow = ids.to_vector<std::int32_t>();
    read.assign(narrow.begin(), narrow.end());
  }
  for (const std::int64_t id : read)
    KEEL_CHECK(id >= 0 && id < vocabulary, "rows of a gradient: id ", id, " is outside [0, ", vocabulary, ")");
  return read;
}

// Where each of `wanted` stands among `rows`, in the values' context.
Tensor places_of(std::span<const std::int64_t> wanted, const Indices& rows, const Context& context) {
  Indices places;
  places.reserve(wanted.size());
  for (const std::int64_t row : wanted)
    places.push_back(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
  return from_values(context, places, {static_cast<std::int64_t>(places.size())}, Purpose::workspace);
}

}  // namespace

RowGradient::RowGradient(const Context& context, const Dims& table, DType dtype)
    : table_(table), indices_(empty(context.host(), {0}, DType::i64, Purpose::gradient)) {
  KEEL_CHECK(table.size() == 2, "a gradient is kept as rows of a table (vocabulary, width), got the shape ", table);
  values_ = empty(context, {0, table[1]}, dtype, Purpose::gradient);
}

std::span<const std::int64_t> RowGradient::rows() const {
  if (count() == 0) return {};
  return {indices_.data<std::int64_t>(), static_cast<std::size_t>(count())};
}

void RowGradient::add(const Tensor& ids, const Tensor& values) {
  KEEL_CHECK(defined(), "rows are added to a gradient of no table");
  const Indices wanted = read_ids(ids, table_[0]);
  if (wanted.empty()) return;
  const std::span<const std::int64_t> had = rows();
  Indices all(had.begin(), had.end());
  all.insert(all.end(), wanted.begin(), wanted.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto count = static_cast<std::int64_t>(all.size());
  const Context context = values_.context();  // outlives the values, which may be replaced
  bool adds = !had.empty();
  if (all.size() != had.size()) {
    const Tensor wider = empty(context, {count, table_[1]}, values_.dtype(), Purpose::gradient);
    if (adds) kernels::embedding_backward(values_, places_of(had, all, context), wider, false);
    values_ = wider;
    indices_ = from_values(context.host(), all, {count}, Purpose::gradient);
  }
  const Tensor places = places_of(wanted, all, context);
  kernels::embedding_backward(kernels::contiguous(values).view({places.numel(), table_[1]}), places, values_, adds);
}

RowGradient RowGradient::between(std::int64_t begin, std::int64_t end) const {
  const std::span<const std::int64_t> all = rows();
  const std::int64_t first = std::lower_bound(all.begin(), all.end(), begin) - all.begin();
  const std::int64_t last = std::lower_bound(all.begin(), all.end(), std::max(begin, end)) - all.begin();
  RowGradient part = *this;
  part.indices_ = indices_.slice(0, first, last);
  part.values_ = values_.slice(0, first, last);
  return part;
}

RowGradient RowGradient::cast(DType dtype) const {
  RowGradient other = *this;
  other.values_ = kernels::cast(values_, dtype);
  return other;
}

Tensor RowGradient::dense() const {
  const Context& context = values_.context();
  const Tensor whole = empty(context, table_, values_.dtype(), Purpose::gradient);
  if (count() == 0) kernels::fill(whole, 0);
  else kernels::embedding_backward(values_, kernels::to(indices_, context, Purpose::workspace), whole, false);
  return whole;
}

}  // namespace keel
