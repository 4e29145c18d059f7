#pragma once
// The folder of a run: which file is what, and which checkpoints there are.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string config() const { return path_ + "/config.yaml"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string tokenizer() const { return path_ + "/tokenizer.json"; }
  // The weights of the newest checkpoint, in fp32.
  std::string model() const { return path_ + "/model.safetensors"; }
  std::string checkpoint(std::int64_t step) const;
  // What every rank computed and sent when: the format of Chrome's traces.
  std::string trace() const { return path_ + "/trace.json"; }
  // What a rank had to say.
  std::string log(int rank) const { return concat(path_, "/logs/rank-", rank, ".log"); }

  // Whether anything that a run writes is there.
  bool holds_run() const;
  // Steps of the checkpoints, ascending. Folders that are still being written do not count.
  std::vector<std::int64_t> checkpoint_steps() const;

 private:
  std::string path_;
};

}  // namespace keel
