#pragma once
// What a rank shows to the others of its node: the memory that collectives go through there.

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

#include "keel/dist/comm/signature.h"
#include "keel/dist/comm/transport.h"

namespace keel {

// A rank's area, which it alone writes, but for `visitors`. Counters only grow; what one counts was written before.
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

  // Collectives: whose slot is written, and for which the rank needs nothing more from the others' memory.
  alignas(64) std::atomic<std::uint64_t> asked, done;
  std::atomic<std::uint32_t> left, closed;  // read as often as these
  // Rounds of larger tensors: shown in a buffer, added up, and taken from all others' buffers.
  alignas(64) std::atomic<std::uint64_t> shown, added, taken;
  alignas(
      64) std::atomic<std::uint32_t> visitors;  // that touch the rank's tensors, which they may not once it is closed
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

  // Whether a counter has come so far on all other ranks. Throws where a rank has left that will not.
  bool all_have(Counter counter, std::uint64_t value);
  std::vector<int> those_behind(Counter counter, std::uint64_t value) const;

  // A window is memory for tensors that all ranks see: an area of each, of as many bytes. Returns its number, which is
  // the same on all ranks as long as they add them in the same order.
  std::uint32_t add_window(SharedAreas areas, std::size_t bytes);
  void remove_window(std::uint32_t number);
  NodeArea::Place place_of(const std::byte* memory) const;
  // That place of a rank, as this one sees it; null where it has no such window.
  std::byte* find(int rank, const NodeArea::Place& place) const;

  bool any_has_closed() const;
  // Between these, this rank may touch the others' tensors. False where a rank has closed.
  bool visit();
  void end_visit();
  // Nobody touches this rank's tensors any more once it returns; of other processes, one that has died might seem to.
  void close();
  void leave(bool abruptly);

  // The same on all ranks.
  std::uint64_t collectives = 0;  // asked for
  std::uint64_t finished = 0;     // of them
  std::uint64_t rounds = 0;       // of those that have finished

  // What is being added, and where to; here so that no collective allocates them.
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
  mutable std::mutex mutex_;  // of the windows: tensors may go on another thread than collectives come
  std::vector<Window> windows_;
  std::uint32_t last_window_ = NodeArea::Place::kPrivate;
  std::vector<Clock::time_point> missed_since_;  // by rank: when its departure was seen
};

}  // namespace keel
