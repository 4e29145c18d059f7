#pragma once
// What tests draw at random: the same for one commit, so that a failure comes again, and something else for the next.

#include <random>

namespace keel::testing {

std::mt19937 by_commit();

}  // namespace keel::testing
