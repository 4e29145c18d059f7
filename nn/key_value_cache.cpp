#include "keel/nn/key_value_cache.h"

#include <algorithm>
#include <numeric>

#include "keel/autograd/flops.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

std::vector<std::int64_t> all_rows(const KeyValueCache& cache) {
  std::vector<std::int64_t> rows(cache.lengths.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

}  // namespace

KeyValueCache make_key_value_cache(const Tensor& weight, const KeyValueShape& shape) {
  KeyValueCache cache;
  cache.capacity = shape.positions;
  cache.lengths.assign(static_cast<std::size_t>(shape.batch), 0);
  const Dims each = {shape.batch, shape.kv_heads, shape.positions, shape.head_size};
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    cache.keys.push_back(empty(weight.context(), each, weight.dtype()));
    cache.values.push_back(empty(weight.context(), each, weight.dtype()));
  }
  return cache;
}

CachedRows::CachedRows(KeyValueCache& cache) : CachedRows(cache, all_rows(cache)) {}

CachedRows::CachedRows(KeyValueCache& cache, std::vector<std::int64_t> rows) : cache_(cache), rows_(std::move(rows)) {
  std::vector<bool> is_taken(cache.lengths.size());
  KEEL_CHECK(!rows_.empty(), "a pass reads at least one row of a cache");
  for (const std::int64_t row : rows_) {
    KEEL_CHECK(row >= 0 && row < std::ssize(cache.lengths), "row ", row, " is not in a cache of ",
               cache.lengths.size());
    KEEL_CHECK(!is_taken[static_cast<std::size_t>(row)], "row ", row, " of a cache is read twice in one pass");
    is_taken[static_cast<std::size_t>(row)] = true;
  }
}

std::int64_t CachedRows::length(std::int64_t entry) const {
  return cache_.lengths[static_cast<std::size_t>(rows_[static_cast<std::size_t>(entry)])];
}

std::int64_t CachedRows::longest() const {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < size(); ++i) most = std::max(most, length(i));
  return most;
}

std::optional<std::int64_t> CachedRows::common_length() const {
  for (std::int64_t i = 1; i < size(); ++i)
    if (length(i) != length(0)) return std::nullopt;
  return length(0);
}

Tensor CachedRows::positions(const Context& context, std::int64_t time) const {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(size() * time));
  for (std::int64_t i = 0; i < size(); ++i)
    for (std::int64_t t = 0; t < time; ++t) all.push_back(length(i) + t);
  return from_values(context, all, {size(), time});
}

Tensor CachedRows::attend(const PackedViews& views, std::size_t layer, std::int64_t window) const {
  KEEL_CHECK(views.q.dim(0) == size(), "a pass of ", views.q.dim(0), " rows reads ", size(), " rows of a cache");
  const std::int64_t heads = views.q.dim(1), time = views.q.dim(2), head_size = views.q.dim(3);
  KEEL_CHECK(longest() + time <= cache_.capacity, "the key/value cache holds ", cache_.capacity, " positions; ",
             longest() + time, " are needed");
  const Tensor out = empty(views.q.context(), {size(), time, heads, head_size}, views.q.dtype());
  // Neighbours of the same length are one call.
  for (std::int64_t begin = 0, end = 0; begin < size(); begin = end) {
    const std::int64_t row = rows_[static_cast<std::size_t>(begin)], first = length(begin), last = first + time;
    for (end = begin + 1; end < size(); ++end)
      if (rows_[static_cast<std::size_t>(end)] != row + end - begin || length(end) != first) break;
    const Tensor keys = cache_.keys[layer].slice(0, row, row + end - begin);
    const Tensor values = cache_.values[layer].slice(0, row, row + end - begin);
    kernels::copy_into(keys.slice(2, first, last), views.k.slice(0, begin, end));
    kernels::copy_into(values.slice(2, first, last), views.v.slice(0, begin, end));
    AttentionArgs args = attention_args(views.q.slice(0, begin, end), keys.slice(2, 0, last), values.slice(2, 0, last),
                                        {.causal = true, .q_offset = first, .window = window});
    args.out = out.slice(0, begin, end).transpose(1, 2);
    count_flops(attention_flops(kernels::attention(args)));
  }
  return out.view({size(), time, heads * head_size});
}

void CachedRows::advance(std::int64_t time) {
  for (const std::int64_t row : rows_) cache_.lengths[static_cast<std::size_t>(row)] += time;
}

}  // namespace keel
