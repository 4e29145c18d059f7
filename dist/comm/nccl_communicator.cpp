#include "keel/dist/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>

#include "keel/dist/comm/collective_schedule.h"
#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/cuda/launch_order.h"
#include "keel/dist/comm/cuda/nccl_collectives.h"
#include "keel/dist/comm/cuda/nccl_group.h"
#include "keel/dist/comm/elements_sent.h"
#include "keel/dist/comm/history.h"
#include "keel/runtime/device_api.h"

namespace keel {
namespace {

using cuda::check_nccl;
using cuda::NcclGroup;
using cuda::NcclHandle;
using cuda::NcclRank;

NcclRank rank_of(const NcclGroup& group, NcclHandle& nccl) {
  return {nccl, group.rank(), group.size(), group.context()};
}

// The group's stream works on the collective's memory, up to `end` where that is known.
void note_use(const NcclGroup& group, const Collective& collective, const std::optional<Event>& end = {}) {
  for (const Tensor& tensor : {collective.input, collective.output})
    if (tensor.defined()) tensor.storage()->used_by(group.stream(), end);
}

// A collective in the group's stream.
class NcclOperation : public Operation {
 public:
  NcclOperation(std::shared_ptr<NcclGroup> group, Event end) : group_(std::move(group)), end_(std::move(end)) {}

  bool advance() override {
    if (finished_) return true;
    group_->check();
    if (!end_.has_passed()) return false;
    group_->check();  // what is given up passes, too
    return finished_ = true;
  }
  void wait() override {
    if (finished_) return;
    group_->check();
    group_->context().stream().wait(end_);
  }

 private:
  std::shared_ptr<NcclGroup> group_;
  Event end_;
  bool finished_ = false;
};

// Messages that are asked for one after the other. They go into the stream together, so that ranks may send to each
// other before they receive.
class Messages : public Operation {
 public:
  explicit Messages(std::shared_ptr<NcclGroup> group) : group_(std::move(group)) {}

  void add(const Collective& message, const std::string& what) {
    if (messages_.empty()) what_ = what;
    messages_.push_back(message);
    behind_.push_back(group_->context().stream().record());
  }
  bool is_queued() const { return queued_ != nullptr; }
  bool is_empty() const { return messages_.empty(); }
  void queue() {
    if (is_queued()) return;
    if (messages_.empty()) throw Error(what_ + " was under way when its communicator went", ErrorKind::peer);
    const Event end = group_->queue(what_, [&](NcclHandle& nccl) {
      for (const Event& event : behind_) group_->stream().wait(event);
      cuda::queue_messages(rank_of(*group_, nccl), messages_);
    });
    for (const Collective& message : messages_) note_use(*group_, message, end);
    queued_ = std::make_unique<NcclOperation>(group_, end);
    abandon();
  }
  void abandon() {
    messages_.clear();
    behind_.clear();
  }

  bool advance() override {
    queue();
    return queued_->advance();
  }
  void wait() override {
    queue();
    queued_->wait();
  }

 private:
  std::shared_ptr<NcclGroup> group_;
  std::string what_;                  // the first one
  std::vector<Collective> messages_;  // that are not in the stream yet
  std::vector<Event> behind_;
  std::unique_ptr<NcclOperation> queued_;
};

// What goes between hosts.
class ControlOperation : public Operation {
 public:
  ControlOperation(std::shared_ptr<NcclGroup> group, const Collective& collective) : group_(std::move(group)) {
    group_->ask_control([&](Communicator& control) { work_ = control.begin(collective); });
  }
  bool advance() override {
    bool finished = false;
    group_->check();
    group_->ask_control([&](Communicator&) { finished = work_.has_finished(); });
    return finished;
  }
  void wait() override {
    group_->check();
    group_->ask_control([&](Communicator&) { work_.wait(); });
  }

 private:
  std::shared_ptr<NcclGroup> group_;
  Work work_;
};

// Also a barrier, which has no tensors.
bool is_of_hosts(const Collective& collective) {
  const auto on_host = [](const Tensor& x) { return !x.defined() || x.device().type == DeviceType::cpu; };
  return on_host(collective.input) && on_host(collective.output);
}

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(std::shared_ptr<NcclGroup> group)
      : group_(std::move(group)),
        host_(Context::create({.threads = 1})),
        algorithm_(find_algorithm(options().algorithm)),
        messages_(std::make_shared<Messages>(group_)) {
    const auto all = algorithms();
    algorithm_number_ = static_cast<std::uint8_t>(
        (is_fast() ? all.end() : std::find(all.begin(), all.end(), &algorithm_)) - all.begin());
    group_->go_on_to(place());
  }
  ~NcclCommunicator() override {
    messages_->abandon();
    group_->close();
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::vector<int>& nodes() const override { return group_->nodes(); }
  std::chrono::milliseconds timeout() const override { return group_->timeout(); }

  Work begin(const Collective& asked) override {
    if (is_of_hosts(asked)) {
      group_->check();
      ++traffic_.collectives;
      queue_messages();
      return Work(std::make_shared<ControlOperation>(group_, asked));
    }
    Collective collective = asked;
    for (Tensor* tensor : {&collective.input, &collective.output}) {
      if (!tensor->defined()) continue;
      if (!(tensor->context() == group_->context()))
        throw Error(concat(asked, ": NCCL moves the memory of ", group_->context().device(),
                           " that its context owns, got ", *tensor, " of another"),
                    ErrorKind::unsupported);
      *tensor = tensor->flatten();
    }
    if (cuda::is_captured(static_cast<cudaStream_t>(group_->context().stream().native())))
      throw Error(concat(asked, ": collectives are not recorded in graphs"), ErrorKind::unsupported);
    if (is_fast() && traits_of(collective.kind).adds && collective.op == CombineOp::pairwise_sum)
      throw Error(concat(asked, ": NCCL adds in an order of its own; pairs of ranks are added in the written order"),
                  ErrorKind::unsupported);
    check_order(algorithm_, collective);
    group_->check();
    ++traffic_.collectives;
    if (traits_of(collective.kind).is_message) return begin_message(collective);
    queue_messages();
    const std::string what = describe(collective);
    agree(collective, what);
    ++sequence_;
    group_->go_on_to(place());
    announce(collective);
    const Event behind = group_->context().stream().record();
    const Event end = group_->queue(what, [&](NcclHandle& nccl) {
      group_->stream().wait(behind);
      queue(rank_of(*group_, nccl), collective);
    });
    note_use(*group_, collective, end);
    return Work(std::make_shared<NcclOperation>(group_, end));
  }
  void poll() override { group_->check(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    KEEL_CHECK(color >= 0, "a colour of NCCL's groups is 0 or more, got ", color);
    queue_messages();
    group_->drain();  // NCCL splits only what is at rest
    std::unique_ptr<Communicator> control;
    group_->ask_control([&](Communicator& whole) { control = whole.split(color, key); });
    const auto part = std::make_shared<NcclGroup>(group_->context(), std::move(control), options());
    part->form(NcclGroup::kJoining, [&](NcclHandle& nccl) {
      group_->form(concat("a split", place()), [&](NcclHandle& whole) { nccl.split_off(whole, color, key); });
    });
    return std::make_unique<NcclCommunicator>(part);
  }

  Traffic traffic() const override {
    Traffic traffic = traffic_;
    group_->ask_control([&](Communicator& control) {
      const Traffic spoken = control.traffic();
      traffic.control = spoken.sent() + spoken.control;
    });
    return traffic;
  }
  void fail(const std::string& reason) noexcept override { group_->fail(reason); }
  void set_activity(const std::string& activity) override {
    activity_ = activity;
    group_->go_on_to(place());
    group_->ask_control([&](Communicator& control) { control.set_activity(activity); });
  }

 private:
  const NcclOptions& options() const { return group_->options(); }
  bool is_fast() const { return options().order == ReduceOrder::fast; }
  CollectiveShape shape_of(const Collective& collective) const { return keel::shape_of(collective, rank(), nodes()); }
  Schedule schedule_of(const Collective& collective) const {
    return keel::schedule_of(algorithm_, collective, rank(), nodes());
  }
  std::string place() const {
    return concat(" (collective number ", sequence_, activity_.empty() ? "" : ", ", activity_, ')');
  }
  std::string describe(const Collective& collective) const { return concat(collective, place()); }

  // The group's stream works on this memory from now on. What brings it back, or waits for it, does so here, where it
  // may use the communicator.
  void announce(const Collective& collective) const {
    for (const Tensor& tensor : {collective.input, collective.output})
      if (tensor.defined()) tensor.storage()->make_ready();
    note_use(*group_, collective);
    if (collective.output.defined()) collective.output.mark_written();
  }

  Work begin_message(const Collective& message) {
    announce(message);
    if (messages_->is_queued()) messages_ = std::make_shared<Messages>(group_);
    messages_->add(message, describe(message));
    if (message.kind == CollectiveKind::send) count(message.peer, message.count(), message.dtype());
    return Work(messages_);
  }
  void queue_messages() {
    if (!messages_->is_empty()) messages_->queue();
  }

  // Puts a collective into the stream.
  void queue(const NcclRank& own, const Collective& c) {
    const CollectiveShape shape = shape_of(c);
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        if (nccl_adds(c)) cuda::queue_all_reduce(own, c);
        else if (algorithm_.name == "direct") return queue_direct_all_reduce(own, c);
        else return run(own, schedule_of(c), c);
        break;
      case CollectiveKind::reduce_scatter:
        if (!nccl_adds(c)) return run(own, schedule_of(c), c);
        cuda::queue_reduce_scatter(own, c);
        break;
      case CollectiveKind::reduce:
        if (!nccl_adds(c)) return run(own, schedule_of(c), c);
        cuda::queue_reduce(own, c);
        break;
      case CollectiveKind::all_gather: cuda::queue_all_gather(own, c.input, c.output, c.counts); break;
      case CollectiveKind::broadcast: cuda::queue_broadcast(own, c.output, c.peer); break;
      default: return run(own, schedule_of(c), c);
    }
    if (c.op == CombineOp::mean && c.output.defined()) kernels::combine({{&c.output, 1}, c.output, c.op, size()});
    count_passed_on(shape, c.kind, c);
  }
  // NCCL would add whole numbers in their dtype, in which the sum of a mean may not fit.
  bool nccl_adds(const Collective& c) const { return is_fast() && (c.op != CombineOp::mean || is_floating(c.dtype())); }
  // The shards to their owners, who add them; then NCCL's all-gather, which knows the machine better than a list of
  // messages does.
  void queue_direct_all_reduce(const NcclRank& own, const Collective& c) {
    const CollectiveShape shape = shape_of(c);
    const Span mine = part({0, shape.count}, size(), rank());
    const Tensor shard = c.output.slice(0, mine.begin, mine.end);
    run(own, algorithm_.reduce_scatter(shape),
        {.kind = CollectiveKind::reduce_scatter, .input = c.input, .output = shard, .op = c.op});
    cuda::queue_all_gather(own, shard, c.output);
    count_passed_on(shape, CollectiveKind::all_gather, c);
  }
  void run(const NcclRank& own, const Schedule& schedule, const Collective& c) {
    cuda::queue_schedule(own, schedule, c, op_of(algorithm_, c.op));
    finish_mean(algorithm_, c, size());
    for (const Step& step : schedule.steps)
      for (const Transfer& send : step.sends) count(send.peer, send.piece.span.count(), c.dtype());
  }

  void count(int peer, std::int64_t elements, DType dtype) {
    const auto node_of = [&](int r) { return nodes()[static_cast<std::size_t>(r)]; };
    const bool near = node_of(peer) == node_of(rank());
    (near ? traffic_.inside_node : traffic_.between_nodes) += elements * static_cast<std::int64_t>(size_of(dtype));
  }
  void count_passed_on(const CollectiveShape& shape, CollectiveKind kind, const Collective& c) {
    count((rank() + 1) % size(), elements_passed_on(shape, kind, c.peer), c.dtype());
  }

  // Compares what ranks have asked for, at every k-th collective.
  void agree(const Collective& collective, const std::string& what) {
    using Told = CollectiveHistory::Told;
    if (options().check_every == 0) return;
    const Told own = history_.add(Signature(sequence_, collective, algorithm_number_, rank()));
    if ((sequence_ + 1) % static_cast<std::uint32_t>(options().check_every) != 0) return;
    const Tensor all = empty(host_, {static_cast<std::int64_t>(sizeof own) * size()}, DType::u8, Purpose::workspace);
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&own);
    const Tensor mine = from_values<std::uint8_t>(host_, std::span(bytes, sizeof own), {all.numel() / size()});
    group_->ask_control([&](Communicator& control) {
      control.set_activity("before " + what);
      control.all_gather(mine, all).wait();
      control.set_activity(activity_);
    });
    std::vector<Told> told(static_cast<std::size_t>(size()));
    std::memcpy(static_cast<void*>(told.data()), all.raw(), all.bytes());
    const std::string found = difference(told, what);
    if (found.empty()) return;
    group_->fail(found);
    throw Error(found, ErrorKind::peer);
  }

  std::shared_ptr<NcclGroup> group_;
  Context host_;
  const Algorithm& algorithm_;
  std::uint8_t algorithm_number_ = 0;
  std::shared_ptr<Messages> messages_;
  std::string activity_;
  Traffic traffic_;
  std::uint32_t sequence_ = 0;
  CollectiveHistory history_;
};

// The same for all ranks, from rank 0.
ncclUniqueId agree_on_id(Communicator& control) {
  ncclUniqueId id = {};
  if (control.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Context host = Context::create({.threads = 1});
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(id.internal);
  const Tensor carried = from_values<std::uint8_t>(host, std::span(bytes, sizeof id.internal),
                                                   {static_cast<std::int64_t>(sizeof id.internal)});
  control.broadcast(carried, 0).wait();
  std::memcpy(id.internal, carried.raw(), sizeof id.internal);
  control.barrier();  // from here on a rank that does not come would hold up the others
  return id;
}

}  // namespace

std::string why_no_nccl() { return {}; }

std::unique_ptr<Communicator> make_nccl_communicator(const Context& context, std::unique_ptr<Communicator> control,
                                                     const NcclOptions& options) {
  KEEL_CHECK(control != nullptr, "an NCCL communicator needs another one, between hosts, by which its ranks meet");
  KEEL_CHECK(options.check_every >= 0, "check_every counts collectives and cannot be ", options.check_every);
  if (context.device().type == DeviceType::cpu)
    throw Error("NCCL moves the memory of GPUs, and this context is the processor's", ErrorKind::unsupported);
  find_algorithm(options.algorithm);
  cuda::ask_for_launch_order();
  ncclUniqueId id = {};
  try {
    id = agree_on_id(*control);
  } catch (const std::exception& error) {
    control->fail(concat("rank ", control->rank(), " failed: ", error.what()));
    throw;
  }
  const auto group = std::make_shared<NcclGroup>(context, std::move(control), options);
  group->form(NcclGroup::kJoining, [&](NcclHandle& nccl) { nccl.join(id, group->size(), group->rank()); });
  return std::make_unique<NcclCommunicator>(group);
}

}  // namespace keel
