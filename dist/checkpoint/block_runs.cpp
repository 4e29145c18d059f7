#include "keel/dist/checkpoint/block_runs.h"

#include <algorithm>

namespace keel {

BlockRuns::BlockRuns(const Dims& shape, const Dims& begin, const Dims& count) {
  int dimensions = shape.size();
  std::int64_t inner = 1;
  while (dimensions > 1 && count[dimensions - 1] == shape[dimensions - 1]) inner *= shape[--dimensions];
  for (int d = 0; d < dimensions; ++d) {
    const std::int64_t unit = d == dimensions - 1 ? inner : 1;
    shape_.push_back(shape[d] * unit);
    begin_.push_back(begin[d] * unit);
    count_.push_back(count[d] * unit);
  }
  if (dimensions > 0) return;
  shape_ = count_ = {1};  // a single number
  begin_ = {0};
}

std::int64_t BlockRuns::before(std::int64_t place) const {
  std::int64_t rest = product(shape_), inside = numel(), sum = 0;
  if (inside == 0) return 0;
  for (int d = 0; d < shape_.size(); ++d) {
    rest /= shape_[d];
    inside /= count_[d];
    const std::int64_t index = place / rest - begin_[d];
    sum += std::clamp<std::int64_t>(index, 0, count_[d]) * inside;
    if (index < 0 || index >= count_[d]) break;
    place %= rest;
  }
  return sum;
}

std::int64_t BlockRuns::place_of(std::int64_t index) const {
  std::int64_t stride = 1, place = 0;
  for (int d = shape_.size() - 1; d >= 0; --d) {
    place += (index % count_[d] + begin_[d]) * stride;
    index /= count_[d];
    stride *= shape_[d];
  }
  return place;
}

}  // namespace keel
