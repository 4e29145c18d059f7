#include "keel/dist/comm/transport_communicator.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/lifeline.h"
#include "keel/dist/comm/node_memory.h"
#include "keel/dist/comm/node_operation.h"
#include "keel/dist/comm/operation.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/slow_transport.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

std::unique_ptr<Communicator> make_of(const std::vector<int>& members, std::unique_ptr<Transport> transport,
                                      const Group& group);

class TransportCommunicator : public Communicator {
 public:
  TransportCommunicator(std::unique_ptr<Transport> transport, const CommunicatorOptions& options,
                        std::shared_ptr<Progress> progress, std::vector<int> names = {})
      : group_(std::make_shared<Group>(Group{std::move(transport), options})) {
    for (int r = 0; names.empty() && r < size(); ++r) group_->names.push_back(r);
    if (!names.empty()) group_->names = std::move(names);
    std::vector<int>& nodes = group_->options.nodes;
    if (nodes.empty()) nodes.assign(static_cast<std::size_t>(size()), 0);
    KEEL_CHECK(static_cast<int>(nodes.size()) == size(), "a node map of ", nodes.size(),
               " ranks does not fit a group of ", size());
    group_->algorithm = &find_algorithm(options.algorithm);
    const auto all = algorithms();
    group_->algorithm_number =
        static_cast<std::uint8_t>(std::find(all.begin(), all.end(), group_->algorithm) - all.begin());
    group_->sent.resize(nodes.size());
    group_->received.resize(nodes.size());
    const bool is_one_node = std::all_of(nodes.begin(), nodes.end(), [&](int node) { return node == nodes.front(); });
    if (options.shared_memory && group_->algorithm->name == "direct" && is_one_node && size() > 1) {
      try {
        if (auto areas = group_->transport->share(NodeMemory::bytes_of_area(size())))
          group_->memory = std::make_shared<NodeMemory>(std::move(*areas), rank());
      } catch (const Error& error) { throw group_->heard(error, "joining its group"); }
    }
    const auto beside = std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(rank())]);
    group_->shares_cores = beside > static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency());
    group_->progress = std::move(progress);
    group_->progress->add(*group_);
  }

  ~TransportCommunicator() override {
    group_->progress->remove(*group_);
    const bool waits = std::any_of(group_->active.begin(), group_->active.end(),
                                   [](const auto& operation) { return !operation->is_over(); });
    const bool abruptly = std::uncaught_exceptions() > exceptions_ || waits || has_failed();
    for (const auto& operation : group_->active) operation->abandon();
    group_->active.clear();
    if (group_->memory) {
      group_->memory->leave(abruptly);
      group_->transport->announce(true);
    }
    group_->transport.reset();
  }
  TransportCommunicator(const TransportCommunicator&) = delete;
  TransportCommunicator& operator=(const TransportCommunicator&) = delete;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::vector<int>& nodes() const override { return group_->options.nodes; }
  std::chrono::milliseconds timeout() const override { return group_->options.timeout; }

  Work begin(const Collective& collective) override {
    for (const Tensor& tensor : {collective.input, collective.output})
      if (tensor.defined() && tensor.device().type != DeviceType::cpu)
        throw Error(concat(collective, ": messages are sent from the processor's memory, got ", tensor),
                    ErrorKind::unsupported);
    check_order(*group_->algorithm, collective);
    ++group_->traffic.collectives;
    const std::uint32_t number = group_->sequence;
    const bool pairwise = traits_of(collective.kind).is_message;
    std::shared_ptr<GroupOperation> operation;
    std::optional<HeldSends> held;  // signatures, and what the first step sends
    try {
      group_->transport->check();
      held.emplace(*group_->transport);
      operation = (group_->memory && !pairwise ? make_node_operation : make_message_operation)(group_, collective);
    } catch (const Error& error) { throw group_->heard(error, concat("in ", group_->describe(collective, number))); }
    group_->active.push_back(operation);
    group_->advance_all();
    return Work(operation);
  }
  void poll() override {
    try {
      group_->transport->check();
    } catch (const Error& error) {
      throw group_->heard(error, group_->active.empty()
                                     ? concat("before its next collective", group_->describe_place())
                                     : concat("in ", group_->describe(group_->active.front()->collective(),
                                                                      group_->active.front()->number())));
    }
    group_->advance_all();
  }

  std::unique_ptr<Communicator> split(int color, int key) override { return split(color, key, &Transport::split); }
  std::unique_ptr<Communicator> split_apart(int color, int key) override {
    return split(color, key, &Transport::split_apart);
  }
  std::unique_ptr<Lifeline> lifeline(const std::vector<int>& groups) override;
  // Among processes of one node: memory that all of them see, so that collectives need no copies.
  Tensor allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose) override {
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
    const std::shared_ptr<NodeMemory> memory = group_->memory;
    std::optional<SharedAreas> areas;
    const bool is_processors = context.device().type == DeviceType::cpu;
    const bool may_be_shared = is_processors && memory && !memory->has_one_address_space() && bytes > NodeArea::kSmall;
    if (may_be_shared) {
      try {
        areas = group_->transport->share(bytes);
      } catch (const Error& error) { throw group_->heard(error, concat("in an allocation", group_->describe_place())); }
    }
    if (may_be_shared && !areas && rank() == 0 && !std::exchange(told_of_private_memory_, true))
      context.log(LogLevel::warning,
                  concat("the system has no ", bytes, " bytes of memory that all ", size(),
                         " ranks see: collectives copy piece by piece, with the same numbers but slower"));
    if (!areas) return Communicator::allocate(context, count, dtype, purpose);
    std::byte* const own = areas->areas[static_cast<std::size_t>(rank())];
    const std::uint32_t window = memory->add_window(std::move(*areas), bytes);
    auto storage = std::make_shared<Storage>(
        context, own, bytes, purpose, [memory, window](void*) { memory->remove_window(window); }, true);
    return Tensor(std::move(storage), {count}, {1}, 0, dtype);
  }
  Traffic traffic() const override { return group_->traffic; }
  void fail(const std::string& reason) noexcept override { group_->fail(reason); }
  bool allows_threads() const override { return group_->transport->allows_threads(); }
  void check_thread() const override { group_->transport->check_thread(); }
  std::shared_ptr<Alarm> alarm() override { return group_->transport->alarm(); }
  void set_activity(const std::string& activity) override { group_->activity = activity; }

  std::unique_ptr<Communicator> regroup(const Regroup& wish) override {
    CommunicatorOptions options = group_->options;
    options.algorithm = find_algorithm(wish.algorithm).name;
    options.shared_memory = wish.shared_memory;
    if (!wish.nodes.empty()) options.nodes = wish.nodes;
    std::unique_ptr<Transport> transport = group_->transport->split(0, rank());
    if (wish.network.is_slow()) transport = make_slow_transport(std::move(transport), wish.network);
    return std::make_unique<TransportCommunicator>(std::move(transport), options, group_->progress, group_->names);
  }

  void join(TransportCommunicator& other) {
    const std::shared_ptr<Progress> theirs = other.group_->progress;
    if (theirs == group_->progress) return;
    for (Group* group : std::vector<Group*>(theirs->groups())) {
      theirs->remove(*group);
      group->progress = group_->progress;
      group->progress->add(*group);
    }
  }

 private:
  std::unique_ptr<Communicator> split(int color, int key, std::unique_ptr<Transport> (Transport::*make)(int, int)) {
    const std::vector<int> members = members_of(color, key);
    std::unique_ptr<Transport> made;
    try {
      made = (group_->transport.get()->*make)(color, key);
    } catch (const Error& error) { throw group_->heard(error, concat("in a split", group_->describe_place())); }
    return make_of(members, std::move(made), *group_);
  }

  bool has_failed() const {
    try {
      group_->transport->check();
    } catch (const std::exception&) { return true; }
    return false;
  }

  // The ranks with this rank's colour, in their new order.
  std::vector<int> members_of(int color, int key) {
    const Context cpu = Context::create({.threads = 1});
    const Tensor mine = from_values<std::int64_t>(cpu, std::vector<std::int64_t>{color, key}, {2});
    const Tensor all = empty(cpu, {2 * size()}, DType::i64, Purpose::workspace);
    all_gather(mine, all).wait();
    const std::vector<std::int64_t> pairs = all.to_vector<std::int64_t>();
    std::vector<int> members;
    for (int r = 0; r < size(); ++r)
      if (pairs[2 * static_cast<std::size_t>(r)] == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return pairs[2 * static_cast<std::size_t>(a) + 1] < pairs[2 * static_cast<std::size_t>(b) + 1];
    });
    return members;
  }

  std::shared_ptr<Group> group_;
  bool told_of_private_memory_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

// The members of a group over a transport of theirs.
std::unique_ptr<Communicator> make_of(const std::vector<int>& members, std::unique_ptr<Transport> transport,
                                      const Group& group) {
  CommunicatorOptions options = group.options;
  options.nodes.clear();
  std::vector<int> names;
  for (const int member : members) {
    options.nodes.push_back(group.options.nodes[static_cast<std::size_t>(member)]);
    names.push_back(group.names[static_cast<std::size_t>(member)]);
  }
  return std::make_unique<TransportCommunicator>(std::move(transport), options, group.progress, std::move(names));
}

class TransportLifeline : public Lifeline {
 public:
  TransportLifeline(std::unique_ptr<Transport> transport, std::shared_ptr<const Group> group,
                    const std::vector<int>& groups)
      : transport_(std::move(transport)),
        group_(std::move(group)),
        agreement_(*transport_, groups, group_->options.timeout,
                   [this] { group_->progress->advance_all_but(*group_); }) {}

  Survivors agree(std::int64_t word) override {
    Survivors survivors = agreement_.agree(word);
    members_ = survivors.ranks;
    ++number_;
    return survivors;
  }
  std::unique_ptr<Communicator> ranks() override {
    return make_of(members_, transport_->among(members_, number_), *group_);
  }

 private:
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<const Group> group_;
  Agreement agreement_;
  std::vector<int> members_ = {};
  std::uint32_t number_ = 0;  // of the agreement
};

std::unique_ptr<Lifeline> TransportCommunicator::lifeline(const std::vector<int>& groups) {
  try {
    return std::make_unique<TransportLifeline>(group_->transport->lifeline(), group_, groups);
  } catch (const Error& error) { throw group_->heard(error, concat("in a split", group_->describe_place())); }
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Transport> transport,
                                                const CommunicatorOptions& options) {
  return std::make_unique<TransportCommunicator>(std::move(transport), options, std::make_shared<Progress>());
}

void advance_together(Communicator& one, Communicator& other) {
  auto* const first = dynamic_cast<TransportCommunicator*>(&one);
  auto* const second = dynamic_cast<TransportCommunicator*>(&other);
  KEEL_CHECK(first != nullptr && second != nullptr, "only communicators made of messages can advance together");
  first->join(*second);
}

}  // namespace keel
