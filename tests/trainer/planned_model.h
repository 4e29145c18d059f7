#pragma once
// A model of the task `language` for formulas, without its data.

#include <memory>

#include "keel/models/model_keys.h"
#include "keel/trainer/config.h"

namespace keel::testing {

inline std::unique_ptr<CausalModel> planned_model(const Config& config, std::int64_t vocabulary = 40) {
  return model_spec(config, vocabulary)->make_decoder();
}

}  // namespace keel::testing
