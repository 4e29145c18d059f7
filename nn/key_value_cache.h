#pragma once
// Keys and values of what a decoder has read, for rows of different lengths.

#include <cstdint>
#include <optional>
#include <vector>

#include "keel/autograd/attention.h"

namespace keel {

// Keys and values of the positions seen so far, one pair a layer.
struct KeyValueCache {
  std::vector<Tensor> keys, values;   // each (rows, kv_heads, capacity, head_size)
  std::vector<std::int64_t> lengths;  // positions filled of each row
  std::int64_t capacity = 0;
};
// Room for `positions` of each layer's keys and values, (batch, kv_heads, positions, head_size) each, of the weight's
// context and dtype.
struct KeyValueShape {
  std::int64_t layers = 1, batch = 1, kv_heads = 1, positions = 1, head_size = 1;
};
KeyValueCache make_key_value_cache(const Tensor& weight, const KeyValueShape& shape);

// The rows of a cache that one pass reads on: entry i of the pass's batch follows what row rows[i] holds.
class CachedRows {
 public:
  explicit CachedRows(KeyValueCache& cache);                         // all of them
  CachedRows(KeyValueCache& cache, std::vector<std::int64_t> rows);  // none twice; an Error otherwise

  std::int64_t size() const { return std::ssize(rows_); }
  std::int64_t length(std::int64_t entry) const;
  std::int64_t longest() const;
  // The length that all have; none: they differ.
  std::optional<std::int64_t> common_length() const;
  // i64 (size, time): where tokens stand that follow.
  Tensor positions(const Context& context, std::int64_t time) const;

  // Keys and values (size, kv_heads, time, head_size) join layer `layer`; queries (size, heads, time, head_size) see
  // them and all before, but within the window (0: none). Returns (size, time, heads head_size). Each row has the bits
  // that it has alone. Lengths stay: advance() is for when all layers are through.
  Tensor attend(const PackedViews& views, std::size_t layer, std::int64_t window = 0) const;
  void advance(std::int64_t time);

 private:
  KeyValueCache& cache_;
  std::vector<std::int64_t> rows_;
};

}  // namespace keel
