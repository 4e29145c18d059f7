#pragma once
// Sequences that grow with the steps (Li et al. 2021, "The Stability-Efficiency Dilemma"), by the schedules of
// DeepSpeed's curriculum learning.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/runtime/language.h"
#include "keel/trainer/length.h"

namespace keel {

class BatchSource;

struct CurriculumConfig {
  enum class Type : unsigned char { none, fixed_linear, fixed_root, fixed_discrete };
  Type type = Type::none;
  std::int64_t min_length = 8, max_length = 0;  // positions; max 0: all
  Length steps = {};                            // until max_length is reached
  std::int64_t multiple = 8;                    // lengths are multiples of it, but for max_length
  double root = 2;
  std::vector<std::int64_t> lengths = {};  // of fixed_discrete
  std::vector<Length> until = {};          // their last steps; the last length has no end
  bool operator==(const CurriculumConfig&) const = default;
};

// Why the stages of fixed_discrete do not follow each other, as far as their ends are measured; empty: they do.
std::string problem_of(const CurriculumConfig& config);

// Positions of a step, counted from 1, of sequences of `whole` positions.
//   fixed_root:     floor(min + (max - min) (step / steps)^(1 / root)), down to a multiple, at most max
//   fixed_linear:   the same with root 1
//   fixed_discrete: the first length whose `until` is not below the step, else the last one
std::int64_t length_of_step(const CurriculumConfig& config, std::int64_t step, std::int64_t whole);

// The source with sequences of these lengths; itself without a curriculum. `whole`: positions of its rows. An Error
// where rows are no sequences, or where a length is longer than they are.
std::shared_ptr<const BatchSource> with_curriculum(const CurriculumConfig& config,
                                                   std::shared_ptr<const BatchSource> source, std::int64_t whole);

}  // namespace keel
