#pragma once
// What the ranks of an emulated NCCL communicator share: which of their calls belong together, and what these do.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "keel/runtime/emulation/machine.h"
#include "keel/runtime/emulation/nccl.h"

namespace keel::emulation {

struct Gathering;

enum class CallKind : unsigned char { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, receive };

struct Call {
  CallKind kind = CallKind::all_reduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int peer = -1;  // the root, or the other rank of a send or receive
};

bool is_reduction(CallKind kind);
std::size_t size_of(ncclDataType_t type);  // 0: no such type here
// "all_reduce of 5 float32, sum": the same text for calls that match, sends and receives apart.
std::string to_string(const Call& call);
// Bytes of the send and the receive buffer that the call touches at this rank of n.
std::size_t bytes_sent(const Call& call, int rank, int ranks);
std::size_t bytes_received(const Call& call, int rank, int ranks);
// "rank 2" or "ranks 0, 2".
std::string name_of_ranks(const std::vector<int>& ranks);

// Calls of several ranks that are one operation.
struct Meeting {
  struct Part {
    Call call;
    std::shared_ptr<const Place> place;
  };
  std::uint64_t number = 0;                // from 1, among the collectives, or from one rank to another
  std::vector<int> ranks;                  // that take part: all, or sender and receiver
  std::vector<std::optional<Part>> parts;  // of these, once they have called
  bool done = false;
};

// Locked by its users; the machine's lock is taken before, never after.
class Clique {
 public:
  explicit Clique(int size)
      : size_(size), collectives_(static_cast<std::size_t>(size)), aborted_(collectives_.size()) {}
  int size() const { return size_; }
  std::mutex& mutex() const { return mutex_; }

  std::shared_ptr<Meeting> join(int rank, const Call& call, std::shared_ptr<const Place> place);
  // Moves the meeting's numbers. Throws an Error when its calls do not match.
  void perform(Meeting& meeting);

  // From now on no operation runs: what is queued ends with this error. The first failure is the one that counts.
  void fail(ncclResult_t error, const std::string& what);
  void cancel(int rank);  // by that rank, of whose work nothing happens any more
  ncclResult_t error() const { return error_; }
  const std::string& failure() const { return failure_; }
  bool has_aborted(int rank) const { return aborted_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<Gathering> splitting;  // ranks that come to split it; under another lock

 private:
  mutable std::mutex mutex_;
  int size_;
  std::vector<std::uint64_t> collectives_;                         // calls so far, by rank
  std::map<std::tuple<int, int, CallKind>, std::uint64_t> moves_;  // sends and receives so far, by sender and receiver
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Meeting>> waiting_;  // by sender and receiver, or -1
  std::vector<bool> aborted_;
  ncclResult_t error_ = ncclSuccess;
  std::string failure_;
};

// One rank's operation in a stream: a call, or those of a group.
class Launch final : public Gate {
 public:
  Launch(std::shared_ptr<Clique> clique, int rank) : clique_(std::move(clique)), rank_(rank) {}
  ~Launch() override;  // gives the communicator up when it did not run

  void add(const Call& call);
  const std::shared_ptr<Place>& place() const { return place_; }
  void run();

  bool is_open() const override;
  std::vector<CUstream_st*> blockers() const override;
  std::string describe() const override;

 private:
  bool is_undone() const;

  std::shared_ptr<Clique> clique_;
  int rank_;
  std::shared_ptr<Place> place_ = std::make_shared<Place>();
  std::vector<std::shared_ptr<Meeting>> meetings_;
  std::vector<Call> calls_;
};

}  // namespace keel::emulation
