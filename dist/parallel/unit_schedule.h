#pragma once
// Which unit is gathered, released and reduced, and when: the rules of the engine, without tensors and communicators.
//
// It is told what happens, and answers with what is to be done about it, in order. The engine (sharded.h) tells it what
// a model does; plans (planned_step.h) tell it what a transformer would do. Every rank asks for collectives in the
// order of these answers, so ranks that are told the same ask for the same.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "keel/dist/parallel/sharding.h"

namespace keel {

struct ScheduledUnit {
  std::size_t module = 0;  // a number that units of one module have in common
  bool root = false;       // of the module around all others, which comes first in forward and last in backward
  bool trainable = true;
  bool shards_parameters = false;   // they are whole only while somebody uses them
  bool fetches = false;             // a gather reads this rank's part from a file
  bool stores_gradient = false;     // the whole gradient lies in a file between passes
  bool gathers_sums = false;        // the sums of its gradient are gathered once they are all there
  std::size_t leaves = 1;           // a backward pass comes past each of these once
  std::int64_t gradient_bytes = 0;  // of the whole one, for buckets
};

struct UnitAction {
  enum class Kind : unsigned char {
    fetch,            // begin to read what a gather needs from its file
    gather,           // begin to gather the whole parameters
    wait_gathered,    // they are needed now; nothing is under way where they never go
    release,          // give the whole parameters back
    store_gradient,   // begin to write the whole gradient to its file
    begin_reduce,     // begin to sum the gradient over the ranks
    continue_reduce,  // begin the collectives of that sum that follow the first, if any
    finish_reduce,    // wait for the sum
    gather_gradient,  // begin to gather the sums
    wait_gradient,
  };
  Kind kind;
  std::size_t unit;
  bool operator==(const UnitAction&) const = default;
};

// One rank's. `stage` 0 to 3 of the options decides how many sums are under way at a time, and what a bucket is.
class UnitSchedule {
 public:
  using Actions = std::vector<UnitAction>;

  UnitSchedule() = default;
  UnitSchedule(std::vector<ScheduledUnit> units, const ShardingOptions& options);

  // A module's forward pass. The first one tells the order in which later ones are prefetched. `backward_follows`: the
  // pass is recorded.
  Actions forward_begins(std::size_t module);
  Actions forward_ends(std::size_t module, bool backward_follows);

  struct Backward {
    bool reduces = false;  // gradients are summed over the ranks
    bool last = false;     // of the step
  };
  // A backward pass that gives units gradients.
  Actions backward_begins(const Backward& pass);
  // One in which parameters are constants, whose whole weights it reads all the same.
  void constants_begin();
  // The pass has come past one of a unit's leaves: its gradient is there, or it was a constant.
  Actions leaf_passed(std::size_t unit);
  // Sends what was not ready, or was not to be sent before, and waits for all sums. Nothing of a pass of constants.
  Actions backward_ends();

  // Somebody reads a unit's whole weights.
  Actions touched(std::size_t unit);
  // Whole weights of this unit, or of all, are of no use any more, or not those that count.
  Actions given_back(std::size_t unit);
  Actions given_back();

  // Whether the pass has come past all leaves of the unit.
  bool is_passed(std::size_t unit) const { return leaves_left_[unit] == 0; }
  // The units of each bucket in the order in which they are sent.
  const std::vector<std::vector<std::size_t>>& buckets() const { return buckets_; }
  // Sums that may be under way at a time. Where gradients are sharded the whole ones of each take memory.
  std::size_t most_under_way() const { return shards_gradients_ ? 1 : 4; }

 private:
  void make_buckets();
  using Kind = UnitAction::Kind;
  void add(Kind kind, std::size_t unit) { actions_.push_back({kind, unit}); }
  Actions take() { return std::exchange(actions_, {}); }
  void gather(std::size_t unit);
  void gather_module(std::size_t module);
  void fetch_module(std::int64_t place);
  void release(std::size_t unit);
  void release_passed(std::int64_t place);
  bool is_done(std::size_t module) const;
  void gradient_begins(std::size_t unit);
  void send_ready_buckets(bool all);
  void continue_newest();
  void finish_oldest();

  std::vector<ScheduledUnit> units_;
  ShardingOptions options_;
  bool shards_gradients_ = false;
  std::vector<std::vector<std::size_t>> module_units_;  // one, or two where some parameters are frozen
  std::vector<std::vector<std::size_t>> buckets_;
  std::vector<bool> whole_;    // by unit: sharded parameters that were gathered
  std::vector<bool> fetched_;  // read ahead, and not gathered yet
  // The modules in the order of the first forward pass, and the place of each there, or -1.
  std::vector<std::size_t> forward_order_;
  std::vector<std::int64_t> forward_place_;
  // Of the backward pass that is running.
  Backward pass_;
  bool gives_gradients_ = false;
  std::vector<std::size_t> leaves_left_;  // by unit
  std::size_t next_bucket_ = 0;
  std::deque<std::size_t> sent_;  // units whose sums are under way
  bool newest_continued_ = false;
  Actions actions_;
};

}  // namespace keel
