#include "keel/dist/comm/transport_communicator.h"

#include <algorithm>
#include <deque>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/signature.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

// What messages of a group are about; collectives and messages between two ranks are counted apart.
enum class Channel : std::uint64_t { signature, data, offer, reply, message, kinds };

std::uint64_t tag_of(Channel channel, std::uint32_t sequence) {
  return std::uint64_t{sequence} * static_cast<std::uint64_t>(Channel::kinds) + static_cast<std::uint64_t>(channel);
}

// Above it the root of a broadcast sends parts that the others exchange.
constexpr std::int64_t kScatteredBroadcast = std::int64_t{256} << 10;  // bytes

class TransportOperation;

// What the operations of a communicator share. The transport goes with the communicator, which abandons what is active.
struct Group {
  std::unique_ptr<Transport> transport;
  CommunicatorOptions options;
  const Algorithm* algorithm = nullptr;
  std::uint8_t algorithm_number = 0;
  std::string activity = {};
  Traffic traffic = {};
  std::uint32_t sequence = 0;
  std::vector<std::uint32_t> sent = {}, received = {};  // messages to and from each rank
  std::deque<std::shared_ptr<TransportOperation>> active = {};

  int rank() const { return transport->rank(); }
  int size() const { return transport->size(); }
  void advance_all();
};

Schedule schedule_of(const Group& group, const Collective& c) {
  const CollectiveShape shape{
      .rank = group.rank(), .size = group.size(), .count = c.count(), .node = group.options.nodes};
  switch (c.kind) {
    case CollectiveKind::all_reduce: return group.algorithm->all_reduce(shape);
    case CollectiveKind::reduce_scatter: return group.algorithm->reduce_scatter(shape);
    case CollectiveKind::all_gather: return group.algorithm->all_gather(shape);
    case CollectiveKind::all_to_all: return all_to_all(shape);
    case CollectiveKind::broadcast: {
      const bool scattered = group.size() > 2 && static_cast<std::int64_t>(c.output.bytes()) > kScatteredBroadcast;
      return scattered ? broadcast_scattered(shape, c.peer) : broadcast_tree(shape, c.peer);
    }
    case CollectiveKind::send: return {{{.sends = {{c.peer, {Place::input, {0, c.count()}}}}}}, 0};
    case CollectiveKind::receive: return {{{.receives = {{c.peer, {Place::output, {0, c.count()}}}}}}, 0};
    case CollectiveKind::barrier: break;
  }
  return {};
}

// First the signatures, with everyone who takes part; then the schedule, step by step.
class TransportOperation : public Operation, public std::enable_shared_from_this<TransportOperation> {
 public:
  TransportOperation(std::shared_ptr<Group> group, const Collective& collective)
      : group_(std::move(group)), collective_(collective), signatures_(static_cast<std::size_t>(group_->size())) {
    for (Tensor* tensor : {&collective_.input, &collective_.output})
      if (tensor->defined()) *tensor = tensor->flatten();
    memory_ = std::make_shared<Memory>(Memory{collective_.input, collective_.output});
    const bool pairwise = collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive;
    pairwise ? offer() : exchange_signatures();
  }

  bool advance() override {
    if (failure_) std::rethrow_exception(failure_);
    try {
      while (!finished_ && transfers_finished()) begin_next_step();
    } catch (...) {
      give_up(std::current_exception());
      throw;
    }
    return finished_;
  }

  void wait() override {
    const Clock::time_point deadline = Clock::now() + group_->options.timeout;
    while (!advance()) {
      group_->advance_all();
      if (finished_) return;
      if (Clock::now() > deadline) time_out();
      group_->transport->idle(std::chrono::milliseconds(1));
    }
  }

  // The communicator goes: whoever still waits gets an Error.
  void abandon() {
    if (is_over()) return;
    failure_ = std::make_exception_ptr(Error(concat(collective_, " was under way when its communicator went")));
    release();
  }
  bool is_over() const { return finished_ || failure_ != nullptr; }

 private:
  struct Pending {
    std::unique_ptr<Message> message;
    int peer;
    bool is_receive;
  };
  // What messages are about; outlives the operation where a transport needs it longer.
  struct Memory {
    Tensor input, output, scratch = {};
  };

  // To every rank, and from it.
  void exchange_signatures() {
    const std::uint32_t sequence = group_->sequence++;
    number_ = sequence;
    data_tag_ = tag_of(Channel::data, sequence);
    sign(sequence);
    for (int i = 1; i < group_->size(); ++i)
      swap_signatures((group_->rank() + i) % group_->size(), tag_of(Channel::signature, sequence),
                      tag_of(Channel::signature, sequence));
  }
  // Between a sender and a receiver.
  void offer() {
    const bool sends = collective_.kind == CollectiveKind::send;
    const int peer = collective_.peer;
    const std::uint32_t sequence = (sends ? group_->sent : group_->received)[static_cast<std::size_t>(peer)]++;
    number_ = sequence;
    data_tag_ = tag_of(Channel::message, sequence);
    sign(sequence);
    signatures_[own()].kind = CollectiveKind::send;
    swap_signatures(peer, tag_of(sends ? Channel::offer : Channel::reply, sequence),
                    tag_of(sends ? Channel::reply : Channel::offer, sequence));
  }
  std::size_t own() const { return static_cast<std::size_t>(group_->rank()); }
  void sign(std::uint32_t sequence) {
    signatures_.assign(signatures_.size(), {});
    signatures_[own()] = Signature(sequence, collective_, group_->algorithm_number);
  }
  void swap_signatures(int peer, std::uint64_t send_tag, std::uint64_t receive_tag) {
    partners_.push_back(peer);
    Transport& transport = *group_->transport;
    pending_.push_back({transport.send(peer, send_tag, &signatures_[own()], sizeof(Signature)), peer, false});
    pending_.push_back(
        {transport.receive(peer, receive_tag, &signatures_[static_cast<std::size_t>(peer)], sizeof(Signature)), peer,
         true});
    group_->traffic.control += sizeof(Signature);
  }

  bool transfers_finished() {
    std::erase_if(pending_, [](const Pending& pending) { return pending.message->has_finished(); });
    return pending_.empty();
  }

  void begin_next_step() {
    if (next_ == 0) agree();
    else
      for (const Combination& combination : schedule_.steps[next_ - 1].combinations) combine(combination);
    if (next_ == schedule_.steps.size()) {
      finish();
      return;
    }
    const Step& step = schedule_.steps[next_++];
    Transport& transport = *group_->transport;
    for (const Transfer& receive : step.receives) {
      const Tensor piece = at(receive.piece);
      pending_.push_back({transport.receive(receive.peer, data_tag_, piece.raw(), piece.bytes()), receive.peer, true});
      pending_.back().message->keep(memory_);
    }
    for (const Transfer& send : step.sends) {
      const Tensor piece = at(send.piece);
      pending_.push_back({transport.send(send.peer, data_tag_, piece.raw(), piece.bytes()), send.peer, false});
      pending_.back().message->keep(memory_);
      count(send.peer, static_cast<std::int64_t>(piece.bytes()));
    }
  }

  void agree() {
    std::vector<Signature> asked = {signatures_[own()]};
    if (partners_.size() + 1 == signatures_.size()) asked = signatures_;
    else
      for (const int peer : partners_) asked.push_back(signatures_[static_cast<std::size_t>(peer)]);
    const std::string found = difference(asked);
    if (!found.empty()) throw Error(found, ErrorKind::peer);
    schedule_ = schedule_of(*group_, collective_);
    if (schedule_.scratch != 0)
      memory_->scratch = empty((collective_.output.defined() ? collective_.output : collective_.input).context(),
                               {schedule_.scratch}, collective_.dtype(), Purpose::workspace);
  }

  Tensor at(const Piece& piece) const {
    const Tensor& all = piece.place == Place::input    ? collective_.input
                        : piece.place == Place::output ? collective_.output
                                                       : memory_->scratch;
    return all.slice(0, piece.span.begin, piece.span.end);
  }

  void combine(const Combination& combination) {
    std::vector<Tensor> terms;
    for (const Piece& term : combination.terms) terms.push_back(at(term));
    const Tensor result = at(combination.result);
    if (terms.size() == 1 && terms.front().raw() == result.raw()) return;
    kernels::combine({terms, result, collective_.op});
  }

  void count(int peer, std::int64_t bytes) {
    const std::vector<int>& node = group_->options.nodes;
    const bool near = node[static_cast<std::size_t>(peer)] == node[own()];
    (near ? group_->traffic.inside_node : group_->traffic.between_nodes) += bytes;
  }

  void finish() {
    finished_ = true;
    if (collective_.output.defined()) collective_.output.mark_written();
    release();
  }
  void release() {
    pending_.clear();
    memory_.reset();
    collective_.input = collective_.output = {};
  }

  void give_up(std::exception_ptr failure) {
    failure_ = std::move(failure);
    try {
      std::rethrow_exception(failure_);
    } catch (const std::exception& error) { group_->transport->fail(error.what()); }
    release();
  }

  [[noreturn]] void time_out() {
    std::vector<int> missing;
    for (const Pending& pending : pending_)
      if (pending.is_receive && std::find(missing.begin(), missing.end(), pending.peer) == missing.end())
        missing.push_back(pending.peer);
    std::sort(missing.begin(), missing.end());
    std::string ranks;
    for (const int rank : missing) ranks += concat(ranks.empty() ? "" : ", ", rank);
    const Error error(
        concat("rank ", group_->rank(), " gave up after ", group_->options.timeout.count(), " ms in ", collective_,
               " (collective number ", number_, group_->activity.empty() ? "" : concat(", ", group_->activity),
               "): nothing came from ", missing.size() == 1 ? "rank " : "ranks ", ranks.empty() ? "its peers" : ranks),
        ErrorKind::peer);
    give_up(std::make_exception_ptr(error));
    throw error;
  }

  std::shared_ptr<Group> group_;
  Collective collective_;
  std::vector<Signature> signatures_;  // by rank
  std::vector<int> partners_;          // whose signatures are awaited
  std::uint32_t number_ = 0;
  std::uint64_t data_tag_ = 0;
  Schedule schedule_;
  std::shared_ptr<Memory> memory_;
  std::vector<Pending> pending_;
  std::size_t next_ = 0;  // of the schedule's steps
  bool finished_ = false;
  std::exception_ptr failure_;
};

void Group::advance_all() {
  for (const auto& operation : std::deque(active))
    if (!operation->is_over()) operation->advance();
  std::erase_if(active, [](const auto& operation) { return operation->is_over(); });
}

class TransportCommunicator : public Communicator {
 public:
  TransportCommunicator(std::unique_ptr<Transport> transport, const CommunicatorOptions& options)
      : group_(std::make_shared<Group>(Group{std::move(transport), options})) {
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
  }

  ~TransportCommunicator() override {
    for (const auto& operation : group_->active) operation->abandon();
    group_->active.clear();
    group_->transport.reset();
  }
  TransportCommunicator(const TransportCommunicator&) = delete;
  TransportCommunicator& operator=(const TransportCommunicator&) = delete;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::vector<int>& nodes() const override { return group_->options.nodes; }

  Work begin(const Collective& collective) override {
    for (const Tensor& tensor : {collective.input, collective.output})
      if (tensor.defined() && tensor.device().type != DeviceType::cpu)
        throw Error(concat(collective, ": messages are sent from the processor's memory, got ", tensor),
                    ErrorKind::unsupported);
    group_->transport->check();
    ++group_->traffic.collectives;
    const auto operation = std::make_shared<TransportOperation>(group_, collective);
    group_->active.push_back(operation);
    poll();
    return Work(operation);
  }
  void poll() override {
    group_->transport->check();
    group_->advance_all();
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    CommunicatorOptions options = group_->options;
    options.nodes = nodes_of_group(color, key);
    return make_communicator(group_->transport->split(color, key), options);
  }
  Traffic traffic() const override { return group_->traffic; }
  void fail(const std::string& reason) noexcept override { group_->transport->fail(reason); }
  void set_activity(const std::string& activity) override { group_->activity = activity; }

 private:
  // The nodes of the ranks with this rank's colour, in their new order.
  std::vector<int> nodes_of_group(int color, int key) {
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
    std::vector<int> nodes;
    for (const int member : members) nodes.push_back(group_->options.nodes[static_cast<std::size_t>(member)]);
    return nodes;
  }

  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Transport> transport,
                                                const CommunicatorOptions& options) {
  return std::make_unique<TransportCommunicator>(std::move(transport), options);
}

}  // namespace keel
