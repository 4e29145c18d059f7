#pragma once
// What a training step reads: a batch of token windows, and the interface of everything that makes batches.

#include <cstdint>
#include <limits>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

// A target that the loss leaves out.
inline constexpr std::int32_t kIgnoreTarget = -100;

struct Batch {
  Tensor inputs;                   // i32 (rows, block)
  Tensor targets;                  // i32 (rows, block): the token after each input, or kIgnoreTarget
  Tensor sample_ids;               // i64 (rows): the sample's number in the run, whoever computes it
  std::int64_t target_tokens = 0;  // targets that count
};

// The batch in another context; itself where it already is there.
Batch transfer(const Batch& batch, const Context& target);

// Rows [begin, end) of a step's global batch.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const RowRange&) const = default;
};

// Makes the batch of any step. Row r of a step's global batch depends on (loader, step, r) alone, so a run is resumed
// by its step number, and how the rows are divided among ranks and micro-batches changes nothing.
class Loader {
 public:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

  virtual ~Loader() = default;
  virtual std::int64_t steps() const { return kEndless; }
  // Rows of the global batch of a step in [0, steps()).
  virtual std::int64_t rows(std::int64_t step) const = 0;
  // Some rows of a step. May be called from any thread.
  virtual Batch load(std::int64_t step, RowRange range) const = 0;
  Batch load(std::int64_t step) const { return load(step, {0, rows(step)}); }

 protected:
  // An Error unless the step exists and has these rows.
  void check_range(std::int64_t step, RowRange range) const;
};

// The micro-batches of one rank: contiguous rows, in order, `micro` at most. The rows are shared out as evenly as they
// go, among ranks and then among micro-batches. Every rank has as many micro-batches; the last ones of some may be
// empty.
std::vector<RowRange> divide_rows(std::int64_t rows, std::int64_t micro, std::int64_t rank = 0, std::int64_t world = 1);

}  // namespace keel
