#pragma once
// Samplers: which example is row r of step s. Pure functions, so nothing of them is in a checkpoint.

#include <cstdint>
#include <memory>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// What happens to the examples at an epoch's end that are fewer than a step's rows.
enum class LastRows : unsigned char {
  fewer,  // the step has fewer rows
  join,   // the step is filled up with the next epoch's first
  drop,   // they are left out of this epoch, and others of the next one
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual std::int64_t steps() const = 0;  // BatchSource::kEndless: as many as are asked for
  virtual double steps_per_epoch() const = 0;
  // What follows is of a step in [0, steps()) and a row in [0, rows(step)), and called from several threads; another
  // step or row is an Error.
  virtual std::int64_t rows(std::int64_t step) const = 0;
  // Rows of all steps before this one: its first row's number in the run.
  virtual std::int64_t first_sample(std::int64_t step) const = 0;
  // The example in [0, size()) that is this row of this step.
  virtual std::int64_t example(std::int64_t step, std::int64_t row) const = 0;
  // The epoch, counted from 0, that the row belongs to.
  virtual std::int64_t epoch(std::int64_t step, std::int64_t row) const = 0;
};
using SamplerPtr = std::shared_ptr<const Sampler>;

struct SamplerOptions {
  std::int64_t rows = 1;  // of a step, of all ranks together
  std::uint64_t seed = 0;
  LastRows last = LastRows::fewer;
};
// Each once, in order, then it ends: evaluation and prediction. No example: no step.
SamplerPtr sequential(std::int64_t size, std::int64_t rows);
// Each once, then it ends, as sequential(); but every rank of `world` has one stretch of the examples, in order, so
// that it reads neighbours of a file: rows of a step are divided by divide_rows() (keel/data/divide_rows.h), and a
// rank's stretch is the rank's part of all examples by the same rule. `rows` must be a multiple of `world`.
SamplerPtr in_stretches(std::int64_t size, std::int64_t rows, std::int64_t world);
// Each once an epoch, in an order drawn for each epoch (keel/runtime/random.h, RandomOrder); endless. No table. An
// Error without examples, or where `drop` leaves no step.
SamplerPtr shuffled(std::int64_t size, const SamplerOptions& options);
// Each row drawn by weight, with replacement; endless, and an epoch has as many rows as there are weights. Weights
// finite and at least 0, not all 0, else an Error. 8 bytes for each example are kept.
SamplerPtr weighted(const std::vector<double>& weights, const SamplerOptions& options);
// Rows of a step have like lengths: an epoch's order, as that of shuffled(), is cut into windows of `window` steps,
// each sorted by length and cut into steps, whose order is drawn. What `fewer` leaves for an epoch's last step is not
// sorted; windows join epochs where steps do. Lengths are read once; 8 bytes for each example are kept. An Error where
// the data set knows none.
SamplerPtr grouped_by_length(const DatasetPtr& data, std::int64_t window, const SamplerOptions& options);

}  // namespace keel
