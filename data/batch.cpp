#include "keel/data/batch.h"

#include "keel/runtime/error.h"

namespace keel {

Batch transfer(const Batch& batch, const Context& target) {
  if (batch.inputs.context() == target) return batch;
  return {transfer(batch.inputs, target), transfer(batch.targets, target), transfer(batch.sample_ids, target),
          batch.target_tokens};
}

void Loader::check_range(std::int64_t step, RowRange range) const {
  KEEL_CHECK(step >= 0 && step < steps(), "step ", step, " is outside the loader's ", steps(), " steps");
  KEEL_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= rows(step), "rows [", range.begin, ", ",
             range.end, ") are outside the ", rows(step), " rows of step ", step);
}

std::vector<RowRange> divide_rows(std::int64_t rows, std::int64_t micro, std::int64_t rank, std::int64_t world) {
  KEEL_CHECK(world >= 1 && rank >= 0 && rank < world, "rank ", rank, " is not one of ", world);
  KEEL_CHECK(rows >= 1 && rows % world == 0, "a global batch of ", rows, " sequences cannot be divided among ", world,
             " processes");
  const std::int64_t part = rows / world;
  KEEL_CHECK(micro >= 1 && part % micro == 0, "micro-batches of ", micro, " do not divide the ", part,
             " sequences of a process");
  std::vector<RowRange> ranges;
  for (std::int64_t begin = rank * part; begin < (rank + 1) * part; begin += micro)
    ranges.push_back({begin, begin + micro});
  return ranges;
}

}  // namespace keel
