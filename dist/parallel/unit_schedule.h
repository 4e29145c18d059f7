#pragma once
// Which unit is gathered, released and reduced, and when: the rules of the engine, without tensors and communicators.
//
// It is told what happens, and answers with what is to be done about it, in order. The engine (sharded.h) tells it what
// a model does; plans (step_walk.h) tell it what a transformer would do. Every rank asks for collectives in the order
// of these answers, so ranks that are told the same ask for the same.
//
// What it plans are uses: a forward pass may go through a module several times, as through layers that share their
// weights. It expects the uses of the latest forward pass again, in their order.

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
  std::size_t leaves = 1;           // a backward pass comes past each of these once, however often they were used
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

// A pass over the model, as it begins.
struct UnitPass {
  enum class Kind : unsigned char {
    forward,
    backward,   // gives units gradients
    constants,  // backward, but parameters are constants, whose whole weights it reads all the same
  };
  Kind kind = Kind::forward;
  // Of kind backward:
  bool reduces = false;  // gradients are summed over the ranks
  bool last = false;     // of the step
};

// One rank's. `stage` 0 to 3 of the options decides how many sums are under way at a time, and what a bucket is.
class UnitSchedule {
 public:
  using Actions = std::vector<UnitAction>;

  UnitSchedule() = default;
  UnitSchedule(std::vector<ScheduledUnit> units, const ShardingOptions& options);

  // Takes over sizes of buckets and prefetching for the passes to come, between two of them. The stage stays.
  void resize(const ShardingOptions& options);

  // A forward pass also begins with the first use after a backward pass or after given_back(). As long as nobody has
  // told of one, so does the second, with the module that the first began with.
  Actions pass_begins(const UnitPass& pass);

  // A use of a module in a forward pass. One that is used again within the prefetch window stays whole in between.
  // `backward_follows`: the pass is recorded.
  Actions forward_begins(std::size_t module);
  Actions forward_ends(std::size_t module, bool backward_follows);

  // In a backward pass: the first gradient of a unit is there, or is a constant. leaf_passed() says so by itself.
  Actions gradient_begins(std::size_t unit);
  // The pass has come past one of a unit's leaves, with all of its uses: its gradient is there, or it was a constant.
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
  // How often the latest forward pass has used the unit's module.
  std::int64_t uses_of(std::size_t unit) const;
  // The units of each bucket in the order in which they are sent.
  const std::vector<std::vector<std::size_t>>& buckets() const { return buckets_; }
  // Units whose parameters come and go.
  std::size_t sharded_units() const;
  // Sums that may be under way at a time. Where gradients are sharded the whole ones of each take memory.
  std::size_t most_under_way() const { return shards_gradients_ ? 1 : 4; }

 private:
  void make_buckets();
  using Kind = UnitAction::Kind;
  void add(Kind kind, std::size_t unit) { actions_.push_back({kind, unit}); }
  Actions take() { return std::exchange(actions_, {}); }
  void gather(std::size_t unit);
  void gather_module(std::size_t module);
  void fetch_use(std::int64_t use);
  void release(std::size_t unit);
  void release_module(std::size_t module);
  void release_passed(std::int64_t place);
  void end_forward();
  void begin_backward(const UnitPass& pass);
  std::size_t ahead() const { return static_cast<std::size_t>(options_.prefetch); }
  bool begins_again(std::size_t module) const;
  void begin_use(std::size_t module);
  void advance(std::size_t module);
  bool is_soon(std::size_t module, std::size_t count) const;
  void release_unexpected();
  bool goes_after_forward(std::size_t module) const;
  bool is_done(std::size_t module) const;
  void first_gradient(std::size_t unit);
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
  // Modules, once for each use: of the latest forward pass, and of the one that is under way. The next use that is
  // expected is number `next_` of the former.
  std::vector<std::size_t> uses_, uses_now_;
  std::size_t next_ = 0;
  bool is_told_of_forward_ = false;      // by pass_begins()
  std::vector<std::int64_t> first_use_;  // by module: its number in the latest pass, or -1
  std::vector<int> running_;             // by module: uses that have begun and not ended
  std::vector<bool> awaited_;            // by module: whole for a use that is still to come
  // Of the backward pass that is running.
  UnitPass pass_;
  std::vector<std::size_t> leaves_left_;  // by unit
  std::vector<bool> begun_;               // by unit: its first gradient is there
  std::size_t next_bucket_ = 0;
  std::deque<std::size_t> sent_;  // units whose sums are under way
  bool newest_continued_ = false;
  Actions actions_;
};

}  // namespace keel
