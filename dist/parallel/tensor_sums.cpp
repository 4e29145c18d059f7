#include "keel/dist/parallel/tensor_sums.h"

namespace keel {

TensorSums::TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const RanksSite& site, int sharers,
                       int virtual_ranks)
    : optimizer_(optimizer) {
  for (int pass = 0; pass < optimizer.requirements().passes; ++pass) {
    std::int64_t count = 0;
    places_.emplace_back();
    for (const Dims& shape : shapes) {
      const std::int64_t begin = count;
      count += optimizer.sum_count(pass, shape);
      places_.back().push_back({begin, count});
    }
    sums_.emplace_back(count, site, sharers, virtual_ranks);
  }
}

void TensorSums::measure(std::span<const ParameterRange> parts, std::span<const ParameterRange> ranges,
                         const StepInput& input) {
  for (std::size_t pass = 0; pass < sums_.size(); ++pass) {
    optimizer_.measure(static_cast<int>(pass), parts, input);
    sums_[pass].add();
    optimizer_.settle(static_cast<int>(pass), ranges, input);
  }
}

}  // namespace keel
