#pragma once
// The micro-batches of one rank, step by step, loaded ahead by threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/data/batch.h"
#include "keel/data/prefetch.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

class StepLoader {
 public:
  struct Site {
    std::shared_ptr<const BatchSource> source;
    int rank = 0, ranks = 1;         // which share of the rows this one is of how many
    const Context& context;          // where batches are computed with
    std::int64_t micro = 1;          // rows of a micro-batch, at most
    std::int64_t micro_batches = 1;  // of a step, at most
    int workers = 1;                 // threads that load
    int virtual_ranks = 1;           // that each rank computes in turn, as ShardingOptions has them
  };
  // Goes on after so many steps. What the site names outlives this.
  StepLoader(const Site& site, std::int64_t step);
  StepLoader(const StepLoader&) = delete;
  StepLoader& operator=(const StepLoader&) = delete;

  // Micro-batches that each rank has, those of its virtual ranks one after the other, in the step of this number,
  // counted from 0.
  std::int64_t count(std::int64_t step) const;
  // Begins the next step, of which next() then gives each micro-batch, and returns how many they are: as many on every
  // rank. Where this one has no rows left the step's first row stands in. What cannot be read is an Error.
  std::int64_t begin();
  Batch next();
  // All of the next step.
  std::vector<Batch> take();
  // Waits for those of the next step; returns why they do not come. Empty: they are there.
  std::string look_ahead();

 private:
  std::vector<Rows> divide(std::int64_t step) const;

  Site site_;
  std::int64_t step_;       // that begins next
  std::vector<Rows> rows_;  // of the step that has begun
  std::size_t given_ = 0;   // of its micro-batches
  Batch stand_in_;
  std::optional<PrefetchLoader> batches_;
};

}  // namespace keel
