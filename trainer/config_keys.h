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

struct Config;

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

// For texts that a run has stored, which one of `name` holds, and that training is to go on with: throws UnknownTask.
void check_is_known(const ConfigKeys& keys, std::string_view yaml, std::string_view name);
// "the task 'fit'", of those of which the program does not have one; empty: it has both.
std::string unknown_part(const ConfigKeys& keys, std::string_view yaml);

// Such a text for whoever does not train on with it, where `name` and `overrides` are those of parse_config(). A
// strategy of communication that the program does not have is left out, as weights do not depend on it; a task that it
// does not have throws UnknownTask.
Config parse_stored_config(const std::shared_ptr<const ConfigKeys>& keys, std::string_view yaml, std::string_view name,
                           const std::vector<std::string>& overrides = {}, std::vector<std::string>* notes = nullptr);

}  // namespace keel
