#pragma once
// Collectives on tensors, among the ranks of a group.
//
// Every rank of a group asks for the same collectives in the same order. That is checked: a rank that asks for another
// one, or for another number of elements, gets an Error that says who asked for what, and so does every other rank,
// before any result is written.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/comm/alarm.h"
#include "keel/kernels/combine.h"

namespace keel {

enum class CollectiveKind : unsigned char {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  reduce,
  gather,
  scatter,
  barrier,
  send,
  receive,
};
std::string_view name_of(CollectiveKind kind);

// Elements by rank.
using Counts = std::vector<std::int64_t>;

// What a rank asks for.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  Tensor input = {}, output = {};  // dense; as CollectiveKind says, see Communicator
  CombineOp op = CombineOp::sum;
  int peer = 0;  // the root; to whom something is sent, or from whom
  // A number in [0, 2^16) for what the tensors are. Ranks must name the same one, so that ranks which ask in different
  // orders do not mix up tensors of equal size. Messages, and what has a root, have none.
  int subject = 0;
  // Elements by rank, where the tensor is not cut into shards; of an all_to_all what goes to each rank and what comes
  // from it. A gather and a scatter always have them.
  Counts counts = {}, incoming = {};

  DType dtype() const;
  std::int64_t count() const;  // elements of the whole tensor; of an all_to_all those that this rank gives
  bool has_counts() const { return !counts.empty(); }
};
// "all_to_all_v": with an ending where a rank names its counts.
std::string name_of(CollectiveKind kind, bool has_counts);
// "reduce_scatter of 1024 f32 (sum)", for messages.
std::ostream& operator<<(std::ostream& out, const Collective& collective);

// A collective under way.
class Operation {
 public:
  virtual ~Operation() = default;
  // Makes progress without blocking; true once the result is there.
  virtual bool advance() = 0;
  // Blocks until advance() would be true, or orders the current stream behind it.
  virtual void wait() = 0;
  // Bytes that this rank has sent for it so far; nothing where the communicator counts them before begin() returns.
  virtual std::optional<std::int64_t> sent() const { return std::nullopt; }
};

// The caller's side of a collective. Copies share it; an empty one has finished. Tensors that take part must not be
// written, and results not be read, before wait().
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  bool has_finished() const { return operation_ == nullptr || operation_->advance(); }
  // Throws an Error of kind peer where another rank failed, left, asked for something else, or did not come in time.
  void wait() const {
    if (operation_ != nullptr) operation_->wait();
  }
  // As Operation::sent().
  std::optional<std::int64_t> sent() const { return operation_ != nullptr ? operation_->sent() : std::nullopt; }

 private:
  std::shared_ptr<Operation> operation_;
};

// Bytes that this rank has sent since the communicator was made.
struct Traffic {
  std::int64_t inside_node = 0;    // to ranks of its node
  std::int64_t between_nodes = 0;  // to others
  std::int64_t control = 0;        // signatures; in neither of the two
  std::int64_t collectives = 0;    // asked for
  std::int64_t sent() const { return inside_node + between_nodes; }
  void add(const Traffic& more) {
    inside_node += more.inside_node;
    between_nodes += more.between_nodes;
    control += more.control;
    collectives += more.collectives;
  }
};

// One of several messages: x goes to the peer, or comes from it.
struct PeerMessage {
  enum Way : unsigned char { to, from };
  Way way = to;
  int peer = 0;
  Tensor x = {};
};

struct Regroup;  // keel/dist/comm/regroup.h
class Lifeline;  // keel/dist/comm/lifeline.h

// A group of ranks as one of them sees it. It and all that were split off from it are for one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The node of each rank, counted from 0.
  virtual const std::vector<int>& nodes() const = 0;
  // How long a rank waits for the others before it gives up.
  virtual std::chrono::milliseconds timeout() const = 0;

  // Among n ranks a tensor has n shards: shard r is part r of n (keel/dist/comm/schedule.h), and their lengths differ
  // by one at most.

  // x becomes the sum (or other combination) of all ranks' x.
  Work all_reduce(const Tensor& x, CombineOp op = CombineOp::sum, int subject = 0);
  // The rank's shard of the sum of all inputs. The output may lie in its place of the input.
  Work reduce_scatter(const Tensor& input, const Tensor& output, CombineOp op = CombineOp::sum, int subject = 0);
  // All shards, by rank. The input may lie in its place of the output.
  Work all_gather(const Tensor& input, const Tensor& output, int subject = 0);
  // The root's x, on every rank.
  Work broadcast(const Tensor& x, int root);
  // The root's output becomes the sum of all inputs; there it may be the input. Other ranks need no output.
  Work reduce(const Tensor& input, const Tensor& output, int root, CombineOp op = CombineOp::sum);
  // All inputs, by rank, in the root's output, in whose place its input may lie. Other ranks need no output. Without
  // counts every rank brings as many elements.
  Work gather(const Tensor& input, const Tensor& output, int root, Counts counts = {});
  // The parts of the root's input, one to each rank; the root's output may lie in its place there. Other ranks need no
  // input. Without counts every rank gets as many elements.
  Work scatter(const Tensor& input, const Tensor& output, int root, Counts counts = {});
  // reduce_scatter and all_gather of parts of any lengths, which lie one behind the other: counts[r] elements are rank
  // r's. Every rank names the same counts.
  Work reduce_scatter_v(const Tensor& input, const Tensor& output, Counts counts, CombineOp op = CombineOp::sum,
                        int subject = 0);
  Work all_gather_v(const Tensor& input, const Tensor& output, Counts counts, int subject = 0);
  // The i-th of n equal parts of the input goes to rank i; the i-th of the output comes from there.
  Work all_to_all(const Tensor& input, const Tensor& output);
  // The same with parts of any lengths, which lie one behind the other: sends[i] elements go to rank i, receives[i]
  // come from there. What a rank sends is what its peer receives; otherwise every rank gets an Error.
  Work all_to_all_v(const Tensor& input, const Tensor& output, Counts sends, Counts receives);
  Work send(const Tensor& x, int to);
  Work receive(const Tensor& x, int from);
  // Messages that begin together; the result has finished when all have. Their order matters only between two ranks:
  // the k-th of one to another meets the k-th that the other receives from it.
  Work send_and_receive(const std::vector<PeerMessage>& messages);
  // Blocks until every rank has come.
  void barrier();

  // Asks for any of these; what decorators and benchmarks use. Checks nothing.
  virtual Work begin(const Collective& collective) = 0;
  // Makes progress with everything that is under way, without blocking. Throws where a rank has failed.
  virtual void poll() {}

  // Ranks of the same colour form a group, in the order of `key` and then of their ranks here. Every rank calls it.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // A further communicator of the same ranks, in their order, that advances together with this one. Every rank calls
  // it. An Error where the communicator is not made of messages.
  virtual std::unique_ptr<Communicator> regroup(const Regroup& wish);
  // The same as split(), but what fails in one of these groups, or the end of one of its ranks, is a failure of that
  // group and of those split off from it alone. An Error of kind unsupported where ranks end together, as processes of
  // MPI do, and between devices.
  virtual std::unique_ptr<Communicator> split_apart(int color, int key);
  // By which the ranks that are left agree on who they are, once others have gone: groups[r] is the group of rank r,
  // which goes as a whole. Every rank calls it; the same Error.
  virtual std::unique_ptr<Lifeline> lifeline(const std::vector<int>& groups);
  // Runs f, of which all collectives are among these ranks and nothing that lasts is written before they have
  // succeeded. Where ranks may be lost (keel/dist/strategies/surviving_groups.h), those that are left run it again if
  // one was lost meanwhile; otherwise once.
  virtual void attempt(const std::function<void()>& f) { f(); }
  // How often ranks were lost so far; then rank() and size() are others than before, and what was under way has failed.
  virtual std::int64_t losses() const { return 0; }
  // Memory that this communicator handles best. Every rank asks for as much, in the same order, and all take part.
  virtual Tensor allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose);
  virtual Traffic traffic() const = 0;

  // Ways to do the same collectives with the same bits, by name, the one that it begins with first; none where there is
  // one alone. Collectives from use_way() on go the named one; all ranks name it between the same two.
  // (keel/dist/comm/choosing_communicator.h)
  virtual std::span<const std::string> ways() const { return {}; }
  virtual void use_way(std::size_t /*way*/) {}

  // Tells all ranks that this one cannot go on: what they wait for throws an Error of kind peer with this reason.
  virtual void fail(const std::string& reason) noexcept = 0;
  // What the caller is about, for messages: "step 57".
  virtual void set_activity(const std::string& activity) = 0;
  // Whether several threads may call, one at a time.
  virtual bool allows_threads() const { return true; }
  // Throws an Error of kind unsupported where this thread may not call, as MPI may demand. Collectives do the same.
  virtual void check_thread() const {}
  // What further threads may use beside the one that calls here; null where there is none, as with processes of MPI.
  virtual std::shared_ptr<Alarm> alarm() { return nullptr; }
};

}  // namespace keel
