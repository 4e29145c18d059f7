// Rows of the section `outer`, made from a table of strategies of communication.

#include <algorithm>

#include "keel/trainer/schema_rows.h"
#include "keel/trainer/strategies.h"

namespace keel {

std::vector<SchemaRow> outer_rows(std::span<const StrategyEntry> entries) {
  std::string names = "none";
  std::string help =
      "What groups of sharding.group ranks (0: each rank is one) tell each other. none: their gradients, in every "
      "step. "
      "The others: how far their weights have come, now and then.";
  for (const StrategyEntry& entry : entries) {
    names += concat('|', entry.name);
    help += concat(' ', entry.name, ": ", entry.summary, '.');
  }
  std::vector<KeyRow> rows = {{.key = "outer.type",
                               .type = KeyType::choice,
                               .standard = "none",
                               .help = kept(std::move(help)),
                               .choices = kept(std::move(names)),
                               .on_resume = ResumeRule::warns}};
  rows.push_back({.key = "outer.on_failure",
                  .type = KeyType::choice,
                  .standard = "stop",
                  .help =
                      "What becomes of the other groups when a rank dies. stop: all end. drop: its group ends, and the "
                      "others go on without it, for ranks on processors that are threads or connected by TCP; see "
                      "docs/comm.md.",
                  .choices = "stop|drop",
                  .when_key = "outer.type",
                  .when_values = "none",
                  .when_other = true,
                  .on_resume = ResumeRule::ignores});
  // Rows of one key stand together.
  for (const StrategyEntry& entry : entries)
    for (KeyRow row : entry.rows) {
      row.when_key = "outer.type";
      row.when_values = entry.name;
      row.on_resume = ResumeRule::warns;
      const auto last =
          std::find_if(rows.rbegin(), rows.rend(), [&](const KeyRow& other) { return other.key == row.key; });
      rows.insert(last.base() == rows.begin() ? rows.end() : last.base(), row);
    }
  return schema_rows(rows);
}

}  // namespace keel
