#pragma once
// A model of the task `language` for formulas, without its data.

#include <memory>

#include "keel/tasks/language.h"
#include "keel/trainer/config.h"

namespace keel::testing {

inline std::unique_ptr<Gpt> planned_model(const Config& config, std::int64_t vocabulary = 40) {
  return std::make_unique<Gpt>(gpt_options(config, vocabulary));
}

}  // namespace keel::testing
