#pragma once
// Runs whose groups go on when others are lost (outer.on_failure).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/strategies/surviving_groups.h"
#include "keel/trainer/config.h"
#include "keel/trainer/logged.h"

namespace keel {

// The groups of a run of these ranks; null where all end together. Every rank calls it. Until somebody else listens
// (SurvivingGroups::when_lost()) a loss is an Error on all ranks that are left.
std::unique_ptr<SurvivingGroups> groups_that_may_be_lost(const Config& config, Communicator& ranks);

// What a run tells and records of a group that was dropped in a step, and of the rank that goes on in place of the
// first.
std::string message_of(const LostGroup& lost, std::int64_t step);
std::string message_of_successor(int rank);
std::vector<Logged> record_of(const LostGroup& lost);

}  // namespace keel
