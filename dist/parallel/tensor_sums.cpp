#include "keel/dist/parallel/tensor_sums.h"

namespace keel {

TensorSums::TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const Context& context,
                       const Context& collectives, Communicator& ranks, int sharers, int virtual_ranks)
    : optimizer_(optimizer) {
  for (int pass = 0; pass < optimizer.requirements().passes; ++pass) {
    std::int64_t count = 0;
    places_.emplace_back();
    for (const Dims& shape : shapes) {
      const std::int64_t begin = count;
      count += optimizer.sum_count(pass, shape);
      places_.back().push_back({begin, count});
    }
    sums_.emplace_back(count, context, collectives, ranks, sharers, virtual_ranks);
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

double TensorSums::waited_ms() const {
  double sum = 0;
  for (const RankSums& each : sums_) sum += each.waited_ms();
  return sum;
}

}  // namespace keel
