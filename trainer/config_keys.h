#pragma once
// The keys that a program reads configurations by: keel's own, and those of the task that one names.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/schema.h"
#include "keel/runtime/error.h"
#include "keel/tasks/catalog.h"
#include "keel/trainer/keel_keys.h"
#include "keel/trainer/strategies.h"

namespace keel {

class ConfigKeys {
 public:
  // With keel's tasks and strategies of communication, and these. An Error lists everything that is wrong with them.
  explicit ConfigKeys(std::span<const TaskEntry> own = {}, std::span<const StrategyEntry> strategies = {});

  const TaskCatalog& tasks() const { return tasks_; }
  std::span<const StrategyEntry> strategies() const { return strategies_; }
  // Of configurations whose task.type is this one.
  const Schema& schema(std::string_view task) const;

 private:
  std::vector<StrategyEntry> strategies_;
  std::shared_ptr<const Schema> base_;  // keys that are no task's
  TaskCatalog tasks_;
  std::map<std::string, std::shared_ptr<const Schema>, std::less<>> schemas_;
};

// A stored configuration is of a task, or of a strategy of communication, that this program does not have.
class UnknownTask : public Error {
 public:
  using Error::Error;
};

// For texts that a run has stored, which one of `name` holds: throws UnknownTask.
void check_is_known(const ConfigKeys& keys, std::string_view yaml, std::string_view name);

}  // namespace keel
