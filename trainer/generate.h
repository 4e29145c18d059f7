#pragma once
// Text from the model of a run folder.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "keel/trainer/config.h"

namespace keel {

struct GenerateOptions {
  std::string run;     // folder of a run
  std::string prompt;  // at least one token
  std::int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: among all
  std::uint64_t seed = 1;
  std::string device = "auto";  // see keel/trainer/device.h
};

// Calls on_text with each piece of what the run's task answers (Task::answer()). `language` repeats the prompt and
// continues it; one that has learnt to add is given a sum ("347+586=") and answers with the number in its usual order.
// A folder without a model, or whose
// files do not belong together, is an Error.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text,
              const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

}  // namespace keel
