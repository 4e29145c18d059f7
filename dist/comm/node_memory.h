#pragma once
// The memory through which the ranks of a node do their collectives: each rank has an area that the others see.

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <span>

#include "keel/dist/comm/signature.h"
#include "keel/dist/comm/transport.h"

namespace keel {

// A rank's area, and behind it the tables of its slots. Only that rank writes it, but for `visitors`. Counters only
// grow; what a counter counts was written before the counter.
struct NodeArea {
  static constexpr std::uint64_t kSlots = 16;   // collectives that are asked for ahead of the slowest rank
  static constexpr std::size_t kSmall = 2'048;  // bytes of a tensor that travels with its signature
  static constexpr std::size_t kBuffer = std::size_t{512} << 10;  // bytes of a larger one that are shown at a time

  // Where a tensor lies: at an offset in a window (see NodeMemory), or at an address where ranks have one address
  // space.
  struct Place {
    static constexpr std::uint32_t kPrivate = 0, kAddress = UINT32_MAX;
    std::uint32_t window;
    std::uint64_t offset;
  };
  struct Slot {
    Signature signature;
    Place input, output;
    alignas(64) std::byte data[kSmall];
  };
  enum Departure : std::uint32_t { here, in_order, abruptly };

  // Collectives whose slot this rank has written, and those for which it needs nothing more from the others' memory.
  alignas(64) std::atomic<std::uint64_t> asked, done;
  std::atomic<std::uint32_t> left, closed;  // read as often as these
  // Rounds of larger tensors that this rank has shown in a buffer, added up, and copied from all others' buffers.
  alignas(64) std::atomic<std::uint64_t> shown, added, taken;
  alignas(64) std::atomic<std::uint32_t> visitors;  // ranks that touch this rank's tensors; none may once it has closed
  alignas(64) Slot slots[kSlots];
  alignas(64) std::byte buffers[2][kBuffer];
};

// All areas of a group, as one rank sees them.
class NodeMemory {
 public:
  using Counter = std::atomic<std::uint64_t> NodeArea::*;

  NodeMemory(SharedAreas shared, int rank);
  bool has_one_address_space() const { return shared_.one_address_space; }
  int size() const { return static_cast<int>(shared_.areas.size()); }
  int rank() const { return rank_; }
  NodeArea& area(int rank) const { return *reinterpret_cast<NodeArea*>(shared_.areas[static_cast<std::size_t>(rank)]); }
  NodeArea& own() const { return area(rank_); }
  // Bytes of each rank's area, the tables included.
  static std::size_t bytes_of_area(int ranks);
  // What a rank's slot says of the parts of an all_to_all_v: where those for each rank begin, the end of the last, and
  // the length of the longest.
  std::span<std::int64_t> table(int rank, std::uint64_t slot) const;

  // Whether the counter of every other rank is at `value` at least. Throws where a rank that is behind has left.
  bool all_have(Counter counter, std::uint64_t value);
  std::vector<int> those_behind(Counter counter, std::uint64_t value) const;
  // Whether no other rank's counter is below `value`, this rank's being there.
  bool is_last(Counter counter, std::uint64_t value) const;

  // A window is memory for tensors that all ranks see: an area of `bytes` for each rank. Returns its number, which is
  // the same on all ranks as long as they add windows in the same order.
  std::uint32_t add_window(SharedAreas areas, std::size_t bytes);
  void remove_window(std::uint32_t number);
  NodeArea::Place place_of(const std::byte* memory) const;
  // The address at which this rank sees that place of `rank`; null where it has no such window.
  std::byte* find(int rank, const NodeArea::Place& place) const;

  bool any_has_closed() const;
  // Between these two calls, this rank may touch the others' tensors. False, and no visit, where a rank has closed.
  bool visit();
  void end_visit();
  // Once it returns, nobody touches this rank's tensors any more. It waits for visitors; among processes, for a second
  // at most, since a process that died in a visit never ends it.
  void close();
  void leave(bool abruptly);

  // Counted by this rank, and the same on all ranks.
  std::uint64_t collectives = 0;  // that were asked for
  std::uint64_t finished = 0;     // of these, that have finished
  std::uint64_t rounds = 0;       // of all collectives that have begun to work

  // The terms and results of the sum at hand; kept here so that no collective allocates them.
  std::vector<const std::byte*> terms = {};
  std::vector<std::byte*> results = {};

 private:
  using Clock = std::chrono::steady_clock;

  struct Window {
    std::uint32_t number;
    std::size_t bytes;
    SharedAreas shared;
  };

  SharedAreas shared_;
  int rank_;
  mutable std::mutex mutex_;  // guards the windows: a tensor may be destroyed on another thread than collectives use
  std::vector<Window> windows_;
  std::uint32_t last_window_ = NodeArea::Place::kPrivate;
  std::vector<Clock::time_point> missed_since_;  // by rank: when its departure was seen
};

}  // namespace keel
