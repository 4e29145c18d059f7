#pragma once
// What the transports of one MPI program share: its failure, who has left which group, and messages that are still on
// their way though nobody waits for them.

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "keel/dist/comm/mpi_transport.h"

namespace keel {

// A message in MPI's hands, and all that must stay until they let go of it.
struct MpiFlight {
  // Messages up to this size have memory of their own here: MPI would copy them anyway.
  static constexpr std::size_t kSmall = 64;

  std::vector<MPI_Request> requests = {};
  std::size_t finished = 0;  // of the requests
  std::array<std::byte, kSmall> own = {};
  std::shared_ptr<const void> owner = {};  // of the memory elsewhere

  // Whether all have finished, with or without success.
  bool is_over();
};

// A group of ranks as one of them sees it.
struct MpiGroup {
  struct Peer {
    std::uint64_t sent = 0, received = 0;  // messages that have finished
    // Tags of messages under way, by the tag that MPI sees: the full one, and how many there are.
    std::unordered_map<int, std::pair<std::uint64_t, int>> sending = {}, receiving = {};
  };
  std::uint64_t id = 0;  // the same on all its ranks, and no other group's
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  std::vector<int> members = {};  // ranks of the program
  std::vector<Peer> peers = {};
  bool gave_up = false;  // a message was given up

  MpiGroup(std::uint64_t id, MPI_Comm comm, std::vector<int> members);
};

class MpiProgram {
 public:
  using Clock = std::chrono::steady_clock;

  // How a rank left a group.
  struct Departure {
    std::uint64_t group = 0;
    std::uint64_t sent = 0;      // messages to the rank that is told
    std::uint64_t abruptly = 0;  // after a failure, of which the reason may yet come, or with messages unfinished
  };
  struct Left : Departure {
    Clock::time_point when = {};
  };

  // Duplicates the caller's communicator.
  explicit MpiProgram(MPI_Comm callers);
  ~MpiProgram();
  MpiProgram(const MpiProgram&) = delete;
  MpiProgram& operator=(const MpiProgram&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return control_; }
  // For a group that this rank is the first of.
  std::uint64_t next_group() const { return (static_cast<std::uint64_t>(rank_) << 32) | groups_; }
  void count_group() { ++groups_; }

  void fail(const std::string& reason) noexcept;
  // Reads what other ranks have told. For polls: now and then.
  void look();
  void look_now_and_then() {
    if (++polls_ % 16 == 0) look();
  }
  void throw_failure() const;
  // Null while the rank (of the program) is in the group.
  const Left* departure(std::uint64_t group, int rank) const;

  // Tells the others that this rank leaves. The communicator is freed once no message can be on its way in it.
  void leave(const std::shared_ptr<MpiGroup>& group, bool abruptly);
  // Keeps a message that was given up until MPI lets go of it.
  void keep(std::unique_ptr<MpiFlight> flight) { flights_.push_back(std::move(flight)); }

  // Counts everything that finishes or arrives.
  void note_progress() { ++progress_; }
  std::uint64_t progress() const { return progress_; }

 private:
  void tell(int rank, int what, const std::string& text);
  void hear(int rank, int what, const std::string& text);
  void free_finished_groups();
  void wait_for_the_others();

  MPI_Comm control_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 0;
  std::uint64_t groups_ = 0;
  std::optional<std::string> failure_;
  std::map<std::pair<std::uint64_t, int>, Left> departures_;  // by group and rank
  std::vector<std::shared_ptr<MpiGroup>> left_;               // by this rank
  std::deque<std::unique_ptr<MpiFlight>> flights_;
  int gone_ = 0;  // ranks that have left all groups
  std::uint64_t progress_ = 0;
  unsigned polls_ = 0;
  int exceptions_;
};

}  // namespace keel
