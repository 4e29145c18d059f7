#pragma once
// What `keel launch --restarts` does when the ranks of a run have ended: from what they said and the hosts that answer
// to the next start, without side effects.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch_plan.h"
#include "rank_report.h"

namespace keel::cli {

// A place for one rank. Ranks take the places that are not left out, in their order.
struct Slot {
  std::string host = {};  // empty: this machine
  bool is_left_out = false;
  bool operator==(const Slot&) const = default;
};
using Slots = std::vector<Slot>;

// One start of the ranks, from its end on.
struct SessionEnd {
  int code = 0;
  int user_signal = 0;       // that somebody sent to the launcher; 0: none
  bool was_to_grow = false;  // the launcher asked the ranks to save and end, so that more can go on
  std::vector<RankReport> reports = {};
};

// Why a session ended.
struct Ending {
  enum class Why : unsigned char {
    done,
    stopped,     // a signal asked for it
    grows,       // the launcher did
    bad_input,   // the same would happen again
    not_finite,  // so it would
    no_start,    // no rank ever ran
    died,        // what a restart can cure
  };
  Why why = Why::done;
  std::vector<int> dead = {};  // ranks that died or began the failure; empty where nobody knows
  std::string text = {};       // who died of what
  bool operator==(const Ending&) const = default;
};
Ending ending_of(const SessionEnd& session);

// What the user allows, and what the run can take.
struct RestartRules {
  int ranks = 1;           // that the run began with
  int min_ranks = 0;       // 0: all of them, always
  int restarts = 0;        // at most
  std::int64_t most = 1;   // batch.global: each rank takes a row of it
  std::int64_t group = 0;  // sharding.group, which divides the number of ranks; 0: none
};

// Where the run stands.
struct Standing {
  Slots slots = {};
  std::vector<std::string> silent = {};   // hosts that do not answer
  int used = 0;                           // restarts
  std::optional<std::int64_t> step = {};  // of the newest checkpoint
  bool may_have_copies = false;           // in the memory of hosts, of later steps
};

struct NextStart {
  bool starts = false;  // false: the run is over, with the exit code of its last session
  int ranks = 0;
  Slots slots = {};
  bool is_restart = false;  // one of those that are counted
  std::string line = {};    // for people; empty: all has been said
  bool operator==(const NextStart&) const = default;
};
NextStart decide(const Ending& ending, const Standing& standing, const RestartRules& rules);

bool any_is_left_out(const Slots& slots);
int places_in_use(const Slots& slots);
// The places of a session that goes on without ranks whose processes were killed or have failed.
Slots slots_at_work(const Slots& slots, const std::vector<RankReport>& reports);
// The largest number of ranks in so many places that can take the batch; 0: none can.
int ranks_that_fit(int places, const RestartRules& rules);
// Whether more ranks would go on than now, if left-out places on hosts that answer came back.
bool would_grow(const Slots& slots, const std::vector<std::string>& silent, int ranks, const RestartRules& rules);

// The places of hosts with their ranks; without hosts, so many of this machine.
Slots slots_of(const std::vector<Host>& hosts, int ranks);
// The hosts of places that are not left out, with how many; empty without hosts.
std::vector<Host> hosts_of(const Slots& slots);
// Each host once.
std::vector<std::string> host_names(const Slots& slots, bool left_out_alone);
// Of GPUs with these names, one for each place, those of places that are in use, as CUDA_VISIBLE_DEVICES lists them.
// Empty where places do not have a GPU each.
std::string gpus_in_use(const Slots& slots, const std::vector<std::string>& names);

}  // namespace keel::cli
