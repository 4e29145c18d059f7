#pragma once
// The table of strategies of communication: what groups of ranks tell each other, as `outer.type` of a configuration.
//
// Choices, keys, checks, help and pages come from it. A program of one's own adds entries (keel::main()).

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/dist/strategies/communication_strategy.h"

namespace keel {

struct StrategyEntry {
  std::string_view name;     // a value of outer.type
  std::string_view summary;  // one sentence, without a full stop
  // Its keys, of the section `outer`. They apply where it is chosen; conditions and roles stay empty.
  std::vector<KeyRow> rows = {};
  // Called on every rank. Throws an Error where the values make no sense together.
  std::function<std::unique_ptr<CommunicationStrategy>(const Settings& settings)> make;
};

// keel's own, in the order of documentation.
std::span<const StrategyEntry> keel_strategies();

// Whether groups go on when others are lost: outer.on_failure.
bool drops_groups(const Settings& settings);

// Null: there is none of this name.
const StrategyEntry* find_strategy(std::span<const StrategyEntry> entries, std::string_view name);

}  // namespace keel
