#pragma once
// Text from the model of a run folder.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "keel/dist/comm/communicator.h"
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
  std::string strategy = {};    // how ranks share the model: "zero3"; empty: as the run
};

// Calls on_text with each piece of what the run's task answers (Task::answer()). One of texts repeats the prompt and
// continues it; one that has learnt to add is given a sum ("347+586=") and answers with the number in its usual order.
// Computes in fp32, unless the strategy says otherwise. A folder without a model, or whose files do not belong
// together, is an Error.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text,
              const std::shared_ptr<const ConfigKeys>& keys = keel_keys());
// The same by several ranks, each of which calls it: the first one's on_text hears the answer, which is that of one
// rank.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text, Communicator& ranks,
              const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

}  // namespace keel
