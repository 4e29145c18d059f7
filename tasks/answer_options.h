#pragma once
// What the options of an answer mean for a decoder.

#include "keel/models/sampling.h"
#include "keel/tasks/task.h"

namespace keel {

// Without tokens that end a text: the task looks for those, so that ranks go on together.
inline SamplingOptions sampling_options(const AnswerOptions& options) {
  return {.tokens = options.tokens,
          .temperature = options.temperature,
          .top_k = options.top_k,
          .seed = options.seed,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .repetition_penalty = options.repetition_penalty,
          .first_row = options.first_row};
}

}  // namespace keel
