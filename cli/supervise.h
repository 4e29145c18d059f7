#pragma once
// `keel launch --restarts` and `--keep-going --rejoin`: starts a run again when ranks have died, with those that are
// left or with all.

#include <string>

#include "launch_plan.h"

namespace keel::cli {

struct SupervisionWish {
  int restarts = 0;
  int min_ranks = 0;  // 0: as many as before
  int rejoin = 0;     // seconds; 0: never

  // Whether the launcher has to look after the ranks of such a launch.
  bool is_wished(const LaunchWish& wish) const { return restarts > 0 || (wish.keeps_going && rejoin > 0); }
};

// An Error where the wish makes no sense for what is launched.
void check_supervision(const SupervisionWish& supervision, const LaunchWish& wish);

// Returns the exit code of the run.
int supervise(const SupervisionWish& supervision, LaunchWish wish, const Machine& machine);

}  // namespace keel::cli
