#include "keel/data/divide_rows.h"

#include <algorithm>
#include <iterator>

#include "keel/runtime/error.h"

namespace keel {

std::vector<Rows> divide_rows(std::int64_t rows, std::int64_t micro, std::int64_t rank, std::int64_t world) {
  KEEL_CHECK(world >= 1 && rank >= 0 && rank < world, "rank ", rank, " is not one of ", world);
  KEEL_CHECK(micro >= 1, "micro-batches have at least one sequence, not ", micro);
  KEEL_CHECK(rows >= 1, "a step has at least one row, not ", rows);
  // The i-th of n parts, the longer ones first.
  const auto part = [](Rows all, std::int64_t n, std::int64_t i) {
    const std::int64_t count = all.end - all.begin, shorter = count / n, longer = count % n;
    const std::int64_t begin = all.begin + i * shorter + std::min(i, longer);
    return Rows{begin, begin + shorter + (i < longer ? 1 : 0)};
  };
  const std::int64_t most = (rows + world - 1) / world, micro_batches = (most + micro - 1) / micro;
  std::vector<Rows> ranges;
  for (std::int64_t i = 0; i < micro_batches; ++i)
    ranges.push_back(part(part({0, rows}, world, rank), micro_batches, i));
  return ranges;
}

std::vector<Rows> divide_rows_in_turn(std::int64_t rows, std::int64_t micro, std::int64_t rank, std::int64_t world,
                                      std::int64_t of_each) {
  std::vector<Rows> all;
  for (std::int64_t each = rank * of_each; each < (rank + 1) * of_each; ++each)
    std::ranges::copy(divide_rows(rows, micro, each, world), std::back_inserter(all));
  return all;
}

std::vector<Rows> loaded_rows(std::vector<Rows> micro_batches) {
  const auto is_empty = [](Rows rows) { return rows.begin == rows.end; };
  const auto first = std::ranges::find_if(micro_batches, is_empty);
  if (first == micro_batches.end()) return micro_batches;
  *first = {0, 1};
  micro_batches.erase(std::remove_if(first + 1, micro_batches.end(), is_empty), micro_batches.end());
  return micro_batches;
}

}  // namespace keel
