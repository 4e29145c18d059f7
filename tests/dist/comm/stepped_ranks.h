#pragma once
// Ranks of one thread with memory in common, each of which goes on when the test says so.

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "tests/dist/comm/watched_transport.h"

namespace keel::testing {

class SteppedRanks {
 public:
  explicit SteppedRanks(int n, bool one_address_space = false, const CommunicatorOptions& options = {})
      : hub_(n), before_(static_cast<std::size_t>(n)), works_(static_cast<std::size_t>(n)) {
    for (int r = 0; r < n; ++r) {
      const auto look = [this, r](const SharedAreas& seen, bool for_others) {
        ++announcements;
        expect_no_rank_ahead(seen);
        note(static_cast<std::size_t>(r), for_others);
      };
      comms_.push_back(make_communicator(
          std::make_unique<WatchedTransport>(hub_.connect(r), areas_, look, one_address_space), options));
    }
  }
  int size() const { return static_cast<int>(comms_.size()); }
  Communicator& operator[](int rank) { return *comms_[static_cast<std::size_t>(rank)]; }
  const NodeArea& area(int rank) const { return area_of(areas_, static_cast<std::size_t>(rank)); }

  using Begin = std::function<Work(Communicator&)>;
  void begin(int rank, const Begin& begins) { works_[static_cast<std::size_t>(rank)].push_back(begins((*this)[rank])); }
  const Work& work(int rank, std::size_t which) const { return works_[static_cast<std::size_t>(rank)][which]; }
  // Goes as far as it can: going on at once goes no further.
  bool step(int rank, std::size_t which) {
    const Work& work = works_[static_cast<std::size_t>(rank)][which];
    const bool has_finished = work.has_finished();
    const int then = announcements;
    EXPECT_EQ(work.has_finished(), has_finished);
    EXPECT_EQ(announcements, then);
    return has_finished;
  }
  // All ranks begin, the last one first, and then take turns.
  void run(const Begin& begins) {
    for (int r = size() - 1; r >= 0; --r) begin(r, begins);
    const std::size_t which = works_[0].size() - 1;
    for (int turn = 0; turn < 100; ++turn) {
      bool all = true;
      for (int r = 0; r < size(); ++r) all = step(r, which) && all;
      if (all) return;
    }
    FAIL() << "no end";
  }

  int announcements = 0;
  // What each rank has shown: "0 asked 1, 1 asked 1!", with ! where others may wait for it.
  std::string trace = {};

 private:
  using Counters = std::array<std::uint64_t, 5>;

  void note(std::size_t rank, bool for_others) {
    const NodeArea& own = area_of(areas_, rank);
    const Counters now = {own.asked, own.done, own.shown, own.added, own.taken};
    constexpr const char* kNames[] = {"asked", "done", "shown", "added", "taken"};
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i] != before_[rank][i])
        trace += concat(trace.empty() ? "" : ", ", rank, ' ', kNames[i], ' ', now[i], for_others ? "!" : "");
    before_[rank] = now;
  }

  ThreadHub hub_;
  SharedAreas areas_ = {};
  std::vector<Counters> before_;
  std::vector<std::unique_ptr<Communicator>> comms_ = {};
  std::vector<std::vector<Work>> works_;
};

}  // namespace keel::testing
