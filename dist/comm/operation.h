#pragma once
// What the communicators of one rank share with their collectives under way.

#include <deque>
#include <exception>
#include <vector>

#include "keel/dist/comm/collective_schedule.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/runtime/error.h"

namespace keel {

class GroupOperation;
class NodeMemory;
struct Group;

// The groups of one rank that advance together. A rank that waits for a collective of one of them goes on with those of
// all, since another rank may wait for one of these first.
class Progress {
 public:
  void add(Group& group) { groups_.push_back(&group); }
  void remove(Group& group) { std::erase(groups_, &group); }
  // Advances what is under way in all groups but one. What goes wrong there is thrown where somebody waits for it.
  void advance_all_but(const Group& group) noexcept;
  // Whether something is under way in another group.
  bool is_busy_beside(const Group& group) const;
  const std::vector<Group*>& groups() const { return groups_; }

 private:
  std::vector<Group*> groups_;
};

// A group of ranks as one of them sees it. A communicator that is destroyed abandons the active collectives and takes
// the transport with it.
struct Group {
  std::unique_ptr<Transport> transport;
  CommunicatorOptions options;
  const Algorithm* algorithm = nullptr;
  std::uint8_t algorithm_number = 0;
  std::string activity = {};
  Traffic traffic = {};
  std::uint32_t sequence = 0;
  std::vector<std::uint32_t> sent = {}, received = {};  // messages to and from each rank
  std::deque<std::shared_ptr<GroupOperation>> active = {};
  std::shared_ptr<Progress> progress = {};
  std::shared_ptr<NodeMemory> memory = {};  // none where collectives go by messages
  ScheduleCache schedules = {};
  std::vector<int> names = {};  // of the ranks, in messages: those of the group from which all were split
  bool advances = false;
  bool shares_cores = false;  // with other ranks of its node

  int rank() const { return transport->rank(); }
  int size() const { return transport->size(); }
  // By which messages would do the collective.
  std::shared_ptr<const Schedule> schedule_of(const Collective& collective) {
    return schedules.find(*algorithm, collective, rank(), options.nodes);
  }
  // But for one, which advances itself. Throws what the first operation that fails throws.
  void advance_all(const GroupOperation* but = nullptr);
  void fail(const std::string& reason) noexcept;
  // Returns the bytes.
  std::int64_t count_sent(int peer, std::int64_t bytes);
  int name() const { return names[static_cast<std::size_t>(rank())]; }
  // "all_reduce of 8 f32 (sum) (collective number 5, step 57)".
  std::string describe(const Collective& collective, std::uint32_t number) const;
  // " (collective number 5, step 57)" of the one that comes next.
  std::string describe_place() const { return describe_place(sequence); }
  std::string describe_place(std::uint32_t number) const;
  // The error of another rank, with where this one was when it heard of it: "in a split".
  Error heard(const Error& error, const std::string& where) const;
};

// A collective of a group: how it is waited for, and how it ends.
class GroupOperation : public Operation {
 public:
  bool advance() final;
  void wait() final;
  std::optional<std::int64_t> sent() const final { return sent_; }
  // Called where the communicator is destroyed: whoever still waits gets an Error.
  void abandon();
  const Collective& collective() const { return collective_; }
  std::uint32_t number() const { return number_; }
  bool is_over() const { return finished_ || failure_ != nullptr; }

 protected:
  GroupOperation(std::shared_ptr<Group> group, const Collective& collective);

  // Goes as far as it can without blocking; true once the result is there.
  virtual bool proceed() = 0;
  // The ranks that it waits for.
  virtual std::vector<int> awaited() const = 0;
  // Lets go of all memory but the tensors, which nobody else touches afterwards.
  virtual void release() = 0;

  std::size_t own() const { return static_cast<std::size_t>(group_->rank()); }

  std::shared_ptr<Group> group_;
  Collective collective_;     // its tensors have one dimension
  std::uint32_t number_ = 0;  // for messages
  std::int64_t sent_ = 0;     // bytes

 private:
  // advance() without its checks.
  bool look();
  void finish();
  std::exception_ptr explained(std::exception_ptr failure) const;
  void give_up(std::exception_ptr failure);
  void worry();
  // "ranks 1, 2"
  std::string awaited_ranks() const;
  [[noreturn]] void time_out();

  bool advances_ = false;  // a tensor's touch hook may wait for another collective meanwhile
  bool finished_ = false;
  bool has_worried_ = false;
  std::exception_ptr failure_;
};

// Runs a schedule by messages: first it exchanges signatures with everyone who takes part, then it goes step by step.
std::shared_ptr<GroupOperation> make_message_operation(std::shared_ptr<Group> group, const Collective& collective);

}  // namespace keel
