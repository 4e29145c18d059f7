#pragma once
// Text from the model of a run folder.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "keel/dist/comm/communicator.h"
#include "keel/tasks/task.h"
#include "keel/trainer/config.h"

namespace keel {

// See AnswerOptions (keel/tasks/task.h) for what may be asked of an answer.
struct GenerateOptions {
  std::string run;     // folder of a run, or of a model of Hugging Face's form
  std::string prompt;  // at least one token
  std::int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: among all
  std::uint64_t seed = 1;
  std::string device = "auto";  // see keel/trainer/device.h
  std::string strategy = {};    // how ranks share the model: "zero3"; empty: as the run
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  std::vector<std::string> stop = {};
  std::vector<std::string> changes = {};  // "model.ignored_keys=[x]": values that replace those of the run or folder

  AnswerOptions answer() const;
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

struct GenerateFiles {
  std::string prompts;     // .jsonl or .ndjson: the member `prompt`, or else `text`, of each line; others: each line
  std::string out;         // {"example":0,"prompt":"...","answer":"..."} on a line, in the order of prompts
  bool replaces = false;   // a file `out` that is there already
  std::int64_t batch = 8;  // prompts that are answered at once; no answer depends on it, but for rounding
};
// The answer to each prompt of a file, in place of options.prompt. The file appears when all is written. Returns how
// many there are. Every rank calls it; the first one writes.
std::int64_t generate_file(const GenerateOptions& options, const GenerateFiles& files, Communicator& ranks,
                           const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

}  // namespace keel
