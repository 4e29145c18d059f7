#include "keel/dist/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/lifeline.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/schedule.h"

namespace keel {
namespace {

void check_dense(const Communicator& communicator, std::string_view name, const char* role, const Tensor& tensor) {
  KEEL_CHECK(tensor.defined(), name, " on rank ", communicator.rank(), ": ", role, " is an empty tensor handle");
  KEEL_CHECK(tensor.is_contiguous(), name, " on rank ", communicator.rank(), ": ", role, " ", tensor,
             " must be dense, but has strides ", tensor.strides());
}

void check_pair(const Communicator& communicator, std::string_view name, const Tensor& input, const Tensor& output) {
  check_dense(communicator, name, "input", input);
  check_dense(communicator, name, "output", output);
  KEEL_CHECK(input.dtype() == output.dtype() && input.context() == output.context(), name, " on rank ",
             communicator.rank(), ": input ", input, " and output ", output, " must share dtype and context");
}

void check_shard(const Communicator& communicator, std::string_view name, const Tensor& shard, const Tensor& whole) {
  const std::int64_t count = part({0, whole.numel()}, communicator.size(), communicator.rank()).count();
  KEEL_CHECK(shard.numel() == count, name, ": of ", whole.numel(), " elements among ", communicator.size(),
             " ranks, rank ", communicator.rank(), " has ", count, ", got ", shard);
}

// A length for each rank, which together are those of the tensor.
void check_counts(const Communicator& communicator, std::string_view name, const char* role, const Counts& counts,
                  const Tensor& tensor) {
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool has_negative = std::any_of(counts.begin(), counts.end(), [](std::int64_t count) { return count < 0; });
  KEEL_CHECK(counts.size() == static_cast<std::size_t>(communicator.size()) && !has_negative && sum == tensor.numel(),
             name, " on rank ", communicator.rank(), ": ", role, ' ', tensor, " needs ", communicator.size(),
             " counts which together are its elements, got ", counts.size(), " of ", sum);
}

void check_part(const Communicator& communicator, std::string_view name, const Tensor& part, const Counts& counts) {
  const auto own = static_cast<std::size_t>(communicator.rank());
  KEEL_CHECK(own < counts.size() && counts[own] == part.numel(), name, " on rank ", communicator.rank(),
             ": the counts give it ", own < counts.size() ? counts[own] : 0, " elements, got ", part);
}

void check_peer(const Communicator& communicator, std::string_view name, int peer) {
  KEEL_CHECK(peer >= 0 && peer < communicator.size(), name, " on rank ", communicator.rank(), ": there is no rank ",
             peer, " of ", communicator.size());
}

// Has finished when all have.
class AllOf : public Operation {
 public:
  explicit AllOf(std::vector<Work> works) : works_(std::move(works)) {}
  bool advance() override {
    return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.has_finished(); });
  }
  void wait() override {
    for (const Work& work : works_) work.wait();
  }

 private:
  std::vector<Work> works_;
};

}  // namespace

std::string_view name_of(CollectiveKind kind) { return traits_of(kind).name; }

std::string name_of(CollectiveKind kind, bool has_counts) {
  const CollectiveTraits& traits = traits_of(kind);
  return concat(traits.name, has_counts && !traits.has_root ? "_v" : "");
}

DType Collective::dtype() const {
  const Tensor& any = output.defined() ? output : input;
  return any.defined() ? any.dtype() : DType::u8;
}

std::int64_t Collective::count() const {
  if (has_counts() && kind != CollectiveKind::all_to_all)
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const Tensor& whole = traits_of(kind).given == Held::whole ? input : output;
  return whole.defined() ? whole.numel() : 0;
}

std::ostream& operator<<(std::ostream& out, const Collective& collective) {
  out << name_of(collective.kind, collective.has_counts());
  if (collective.kind == CollectiveKind::barrier) return out;
  out << " of " << collective.count() << ' ' << collective.dtype();
  const CollectiveTraits& traits = traits_of(collective.kind);
  if (traits.adds) out << " (" << name_of(collective.op) << ')';
  if (!traits.has_root && !traits.is_message) return out;
  const bool is_target = collective.kind == CollectiveKind::send || traits.gotten == Held::whole_at_root;
  return out << (is_target ? " to rank " : " from rank ") << collective.peer;
}

Work Communicator::all_reduce(const Tensor& x, CombineOp op, int subject) {
  check_dense(*this, "all_reduce", "x", x);
  return begin({.kind = CollectiveKind::all_reduce, .input = x, .output = x, .op = op, .subject = subject});
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output, CombineOp op, int subject) {
  check_pair(*this, "reduce_scatter", input, output);
  check_shard(*this, "reduce_scatter", output, input);
  return begin(
      {.kind = CollectiveKind::reduce_scatter, .input = input, .output = output, .op = op, .subject = subject});
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output, int subject) {
  check_pair(*this, "all_gather", input, output);
  check_shard(*this, "all_gather", input, output);
  return begin({.kind = CollectiveKind::all_gather, .input = input, .output = output, .subject = subject});
}

Work Communicator::broadcast(const Tensor& x, int root) {
  check_dense(*this, "broadcast", "x", x);
  check_peer(*this, "broadcast", root);
  return begin({.kind = CollectiveKind::broadcast, .input = x, .output = x, .peer = root});
}

Work Communicator::reduce(const Tensor& input, const Tensor& output, int root, CombineOp op) {
  check_peer(*this, "reduce", root);
  check_dense(*this, "reduce", "input", input);
  if (rank() == root) {
    check_pair(*this, "reduce", input, output);
    KEEL_CHECK(input.numel() == output.numel(), "reduce on rank ", rank(), ": input ", input, " and output ", output,
               " must have as many elements");
  }
  return begin({.kind = CollectiveKind::reduce,
                .input = input,
                .output = rank() == root ? output : Tensor(),
                .op = op,
                .peer = root});
}

Work Communicator::gather(const Tensor& input, const Tensor& output, int root, Counts counts) {
  check_peer(*this, "gather", root);
  check_dense(*this, "gather", "input", input);
  if (counts.empty()) counts.assign(static_cast<std::size_t>(size()), input.numel());
  check_part(*this, "gather", input, counts);
  if (rank() == root) {
    check_pair(*this, "gather", input, output);
    check_counts(*this, "gather", "output", counts, output);
  }
  return begin({.kind = CollectiveKind::gather,
                .input = input,
                .output = rank() == root ? output : Tensor(),
                .peer = root,
                .counts = std::move(counts)});
}

Work Communicator::scatter(const Tensor& input, const Tensor& output, int root, Counts counts) {
  check_peer(*this, "scatter", root);
  check_dense(*this, "scatter", "output", output);
  if (counts.empty()) counts.assign(static_cast<std::size_t>(size()), output.numel());
  check_part(*this, "scatter", output, counts);
  if (rank() == root) {
    check_pair(*this, "scatter", input, output);
    check_counts(*this, "scatter", "input", counts, input);
  }
  return begin({.kind = CollectiveKind::scatter,
                .input = rank() == root ? input : Tensor(),
                .output = output,
                .peer = root,
                .counts = std::move(counts)});
}

Work Communicator::reduce_scatter_v(const Tensor& input, const Tensor& output, Counts counts, CombineOp op,
                                    int subject) {
  check_pair(*this, "reduce_scatter_v", input, output);
  check_counts(*this, "reduce_scatter_v", "input", counts, input);
  check_part(*this, "reduce_scatter_v", output, counts);
  return begin({.kind = CollectiveKind::reduce_scatter,
                .input = input,
                .output = output,
                .op = op,
                .subject = subject,
                .counts = std::move(counts)});
}

Work Communicator::all_gather_v(const Tensor& input, const Tensor& output, Counts counts, int subject) {
  check_pair(*this, "all_gather_v", input, output);
  check_counts(*this, "all_gather_v", "output", counts, output);
  check_part(*this, "all_gather_v", input, counts);
  return begin({.kind = CollectiveKind::all_gather,
                .input = input,
                .output = output,
                .subject = subject,
                .counts = std::move(counts)});
}

Work Communicator::all_to_all(const Tensor& input, const Tensor& output) {
  check_pair(*this, "all_to_all", input, output);
  KEEL_CHECK(input.numel() == output.numel() && input.numel() % size() == 0, "all_to_all on rank ", rank(), ": input ",
             input, " and output ", output, " must have as many elements, a multiple of ", size());
  return begin({.kind = CollectiveKind::all_to_all, .input = input, .output = output});
}

Work Communicator::all_to_all_v(const Tensor& input, const Tensor& output, Counts sends, Counts receives) {
  check_pair(*this, "all_to_all_v", input, output);
  check_counts(*this, "all_to_all_v", "input", sends, input);
  check_counts(*this, "all_to_all_v", "output", receives, output);
  const auto own = static_cast<std::size_t>(rank());
  KEEL_CHECK(sends[own] == receives[own], "all_to_all_v on rank ", rank(), ": it sends itself ", sends[own],
             " elements and receives ", receives[own]);
  return begin({.kind = CollectiveKind::all_to_all,
                .input = input,
                .output = output,
                .counts = std::move(sends),
                .incoming = std::move(receives)});
}

Work Communicator::send(const Tensor& x, int to) {
  check_dense(*this, "send", "x", x);
  check_peer(*this, "send", to);
  KEEL_CHECK(to != rank(), "rank ", to, " cannot send to itself");
  return begin({.kind = CollectiveKind::send, .input = x, .peer = to});
}

Work Communicator::receive(const Tensor& x, int from) {
  check_dense(*this, "receive", "x", x);
  check_peer(*this, "receive", from);
  KEEL_CHECK(from != rank(), "rank ", from, " cannot receive from itself");
  return begin({.kind = CollectiveKind::receive, .output = x, .peer = from});
}

Work Communicator::send_and_receive(const std::vector<PeerMessage>& messages) {
  std::vector<Work> works;
  for (const PeerMessage& message : messages)
    works.push_back(message.way == PeerMessage::to ? send(message.x, message.peer) : receive(message.x, message.peer));
  return Work(std::make_shared<AllOf>(std::move(works)));
}

void Communicator::barrier() { begin({}).wait(); }

std::unique_ptr<Communicator> Communicator::regroup(const Regroup& wish) {
  throw Error(
      concat("these ranks cannot use ", wish.algorithm, ": only communicators made of messages have algorithms"),
      ErrorKind::unsupported);
}

std::unique_ptr<Communicator> Communicator::split_apart(int /*color*/, int /*key*/) {
  throw Error(
      "groups that fail by themselves are offered to ranks whose tensors lie in the processor's memory, and that "
      "are threads or connected by TCP",
      ErrorKind::unsupported);
}

std::unique_ptr<Lifeline> Communicator::lifeline(const std::vector<int>& /*groups*/) {
  throw Error(
      "ranks go on without those that have gone where their tensors lie in the processor's memory, and they are "
      "threads or connected by TCP",
      ErrorKind::unsupported);
}

Tensor Communicator::allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose) {
  return empty(context, {count}, dtype, purpose);
}

}  // namespace keel
