#include "keel/trainer/lost_groups.h"

#include <algorithm>

#include "keel/runtime/error.h"
#include "keel/trainer/strategies.h"

namespace keel {

std::unique_ptr<SurvivingGroups> groups_that_may_be_lost(const Config& config, Communicator& ranks) {
  const int group = std::max(static_cast<int>(config.sharding.group), 1);
  // What does not divide the ranks is refused by the engine.
  if (!drops_groups(config) || ranks.size() <= group || ranks.size() % group != 0) return nullptr;
  auto groups = std::make_unique<SurvivingGroups>(ranks, group);
  groups->when_lost([](const LostGroup& lost) {
    throw Error(concat("group ", lost.number, " is gone before training began"), ErrorKind::peer);
  });
  return groups;
}

std::string message_of(const LostGroup& lost, std::int64_t step) {
  const std::string ranks =
      lost.first == lost.last ? concat("rank ", lost.first) : concat("ranks ", lost.first, " to ", lost.last);
  return concat("step ", step, ": group ", lost.number, " (", ranks, ") is gone and was dropped; ", lost.left,
                lost.left == 1 ? " group goes on" : " groups go on");
}

std::string message_of_successor(int rank) {
  return concat("rank ", rank, " takes over: it shows the steps from here on, and writes records and checkpoints");
}

std::vector<Logged> record_of(const LostGroup& lost) {
  return {{std::string(kDroppedGroup), lost.number}, {"groups", lost.left}};
}

}  // namespace keel
