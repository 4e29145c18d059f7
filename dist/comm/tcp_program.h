#pragma once
// What those transports of one rank share that were made together: its connections, the messages that arrive, the ranks
// that have left a group, and failures.

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "keel/dist/comm/tcp_connection.h"
#include "keel/dist/comm/tcp_meeting.h"

namespace keel {

// Several threads may use it: each takes a turn for its calls, apart from idle().
//
// Ranks here are those of the program. A group has a number of its own, the same on all its ranks. It belongs to a
// family, whose number is that of its first group: a failure is one of all groups of a family.
class TcpProgram : public TcpConnection::Listener {
 public:
  using Clock = std::chrono::steady_clock;

  // How a rank left a group.
  struct Left {
    Clock::time_point when = {};
    bool abruptly = false;  // after a failure, of which the reason may yet come
  };

  TcpProgram(int rank, TcpPeers peers);
  ~TcpProgram() override;
  TcpProgram(const TcpProgram&) = delete;
  TcpProgram& operator=(const TcpProgram&) = delete;

  std::unique_lock<std::mutex> turn() const { return std::unique_lock(turn_); }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(connections_.size()); }
  std::uint64_t host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  // Of those that are made with the program: the groups of all ranks, by number.
  static std::uint64_t first_group(std::uint64_t number) { return number << 56; }
  // For a group that this rank is the first of. `origin`: that from which it is split off.
  std::uint64_t next_group(std::uint64_t origin) const {
    return (origin & kOrigin) | (static_cast<std::uint64_t>(rank_) << 32) | groups_;
  }
  void count_group() { ++groups_; }
  // The `number`-th group of some ranks of a lifeline, which they all name without asking each other.
  static std::uint64_t group_among(std::uint64_t lifeline, std::uint32_t number) {
    return kOrigin | (lifeline & kFirstRank) | (lifeline & 0xfffff) << 12 | number;
  }
  // In place of a family's number, for a lifeline: nothing fails it.
  static constexpr std::uint64_t kNoFamily = ~std::uint64_t{0};
  // The group number of the messages that a group's split() and share() exchange.
  static std::uint64_t internal(std::uint64_t group) { return group | std::uint64_t{1} << 63; }

  std::shared_ptr<TcpOutgoing> send(int to, std::uint64_t group, std::uint64_t tag, const void* data,
                                    std::size_t bytes);
  std::shared_ptr<TcpIncoming> receive(int from, std::uint64_t group, std::uint64_t tag, void* data, std::size_t bytes);
  // Between these two calls send() leaves it to the second one, or to the next look, to pass on what it is given.
  void hold() { ++holds_; }
  void let_go();
  void give_up_send(int to, const std::shared_ptr<TcpOutgoing>& frame);
  void give_up_receive(int from, std::uint64_t group, std::uint64_t tag, const std::shared_ptr<TcpIncoming>& incoming);

  // Nothing while the rank is in the group.
  std::optional<Left> departure(std::uint64_t group, int rank) const;
  void leave(std::uint64_t group, const std::vector<int>& members);
  // Whether its connection has ended without a goodbye.
  bool is_gone(int rank) const;

  // A family's ranks, for as long as this rank has groups of it: the end of one of them is its failure.
  void join_family(std::uint64_t family, const std::vector<int>& members);
  void leave_family(std::uint64_t family);
  void fail(std::uint64_t family, const std::string& reason) noexcept;
  std::string failure(std::uint64_t family) const;  // "" where there is none
  void throw_failure(std::uint64_t family) const;
  // This rank goes on without those that have failed: what has failed so far does not make its end an abrupt one.
  void survive() { survived_ = failures_.size(); }

  // Moves what can be moved.
  void look();
  // The same once something can, which it waits for, for `limit` at most. Outside a turn.
  void idle(std::chrono::microseconds limit);
  void look_now_and_then() {
    if (holds_ == 0 && ++polls_ % 16 == 0) look();
  }
  // The same for one rank.
  void look_at(int rank);

  // Counts everything that arrives.
  void note_progress() { ++progress_; }
  std::uint64_t progress() const { return progress_; }

  std::shared_ptr<TcpIncoming> place_for(int from, const TcpHeader& header) override;
  void hear(int from, const TcpHeader& header, const std::string& text) override;

 private:
  static constexpr std::uint64_t kOrigin = std::uint64_t{0x7f} << 56, kFirstRank = std::uint64_t{0xffffff} << 32;

  using Channel = std::tuple<std::uint64_t, int, std::uint64_t>;  // group, sender, tag
  using Waiting = std::map<Channel, std::deque<std::shared_ptr<TcpIncoming>>>;

  struct Family {
    std::vector<int> members;
    int groups = 0;  // of this rank
  };
  struct Files;  // of open connections

  Files files() const;
  void look_at(const Files& files);
  TcpConnection& connection(int rank) { return connections_[static_cast<std::size_t>(rank)]; }
  void tell(int rank, const TcpHeader& header, const std::string& text, bool first);
  void tell_failure(std::uint64_t family, const std::string& reason);
  void check_end(int rank);
  void check_end(int rank, std::uint64_t family, const std::vector<int>& members);
  void forget_finished_groups();
  bool has_failed() const;
  void part();

  mutable std::mutex turn_;
  int rank_;
  std::vector<std::uint64_t> hosts_;
  std::vector<TcpConnection> connections_;
  std::vector<std::optional<Left>> goodbyes_;  // by rank
  Waiting posted_, arrived_;
  std::map<std::pair<std::uint64_t, int>, Left> departures_;  // by group and rank
  std::map<std::uint64_t, std::vector<int>> left_;            // groups that this rank has left, with their members
  std::map<std::uint64_t, Family> families_;                  // by number
  std::map<std::uint64_t, std::string> failures_;             // by family
  std::size_t survived_ = 0;                                  // of them
  std::uint64_t groups_ = 1;                                  // 0 is the first of a family
  std::uint64_t progress_ = 0;
  unsigned polls_ = 0;
  int holds_ = 0;
  bool is_parting_ = false;
  int exceptions_;
};

}  // namespace keel
