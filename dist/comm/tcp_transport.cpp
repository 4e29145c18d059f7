#include "keel/dist/comm/tcp_transport.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <thread>

#include "keel/dist/comm/share_among.h"
#include "keel/dist/comm/tcp_program.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = TcpProgram::Clock;

// Who waits for something in shared memory, of which no connection tells, gives its core to others at each look for so
// long, then sleeps between looks for a small part of the time that it has waited.
constexpr auto kTimeToYield = std::chrono::milliseconds(2);
constexpr auto kShortestSleep = std::chrono::microseconds(50);
constexpr int kShareOfSleep = 16;

// Ranks of one group, as ranks of the program.
struct TcpGroup {
  std::uint64_t id = 0, family = 0;
  int rank = 0;
  std::vector<int> members = {};
  int member(int of_rank) const { return members[static_cast<std::size_t>(of_rank)]; }
};

struct Route {
  int peer;  // of the group
  std::uint64_t group, tag;
};

class TcpMessage : public Message {
 public:
  TcpMessage(std::shared_ptr<TcpProgram> program, std::shared_ptr<const TcpGroup> group, const Route& route)
      : program_(std::move(program)), group_(std::move(group)), route_(route), member_(group_->member(route.peer)) {}

 protected:
  // Throws where it cannot finish any more.
  void check_peer(bool is_hopeless) const {
    program_->throw_failure(group_->family);
    if (program_->is_gone(member_)) throw Error(concat("rank ", route_.peer, " is gone"), ErrorKind::peer);
    const auto left = program_->departure(route_.group, member_);
    if (!left || !is_hopeless) return;
    const bool may_yet_tell = left->abruptly && group_->family != TcpProgram::kNoFamily;
    if (may_yet_tell && Clock::now() - left->when < kTimeToTell) return;
    throw Error(concat("rank ", route_.peer, " has left while rank ", group_->rank, " waits for it"), ErrorKind::peer);
  }

  std::shared_ptr<TcpProgram> program_;
  std::shared_ptr<const TcpGroup> group_;
  Route route_;
  int member_;
};

class TcpSend : public TcpMessage {
 public:
  TcpSend(std::shared_ptr<TcpProgram> program, std::shared_ptr<const TcpGroup> group, const Route& route,
          const void* data, std::size_t bytes)
      : TcpMessage(std::move(program), std::move(group), route) {
    const auto turn = program_->turn();
    frame_ = program_->send(member_, route.group, route.tag, data, bytes);
  }
  ~TcpSend() override {
    const auto turn = program_->turn();
    if (!frame_->is_finished()) program_->give_up_send(member_, frame_);
  }
  TcpSend(const TcpSend&) = delete;
  TcpSend& operator=(const TcpSend&) = delete;

  bool has_finished() override {
    const auto turn = program_->turn();
    if (frame_->is_finished()) return true;
    program_->look_at(member_);
    if (frame_->is_finished()) return true;
    program_->look_now_and_then();
    check_peer(true);
    return false;
  }
  void keep(const std::shared_ptr<const void>& owner) override {
    const auto turn = program_->turn();
    if (!frame_->is_finished()) frame_->owner = owner;
  }

 private:
  std::shared_ptr<TcpOutgoing> frame_;
};

class TcpReceive : public TcpMessage {
 public:
  TcpReceive(std::shared_ptr<TcpProgram> program, std::shared_ptr<const TcpGroup> group, const Route& route, void* data,
             std::size_t bytes)
      : TcpMessage(std::move(program), std::move(group), route), bytes_(bytes) {
    const auto turn = program_->turn();
    incoming_ = program_->receive(member_, route.group, route.tag, data, bytes);
  }
  ~TcpReceive() override {
    const auto turn = program_->turn();
    if (!incoming_->is_finished()) program_->give_up_receive(member_, route_.group, route_.tag, incoming_);
  }

  TcpReceive(const TcpReceive&) = delete;
  TcpReceive& operator=(const TcpReceive&) = delete;

  bool has_finished() override {
    const auto turn = program_->turn();
    if (is_there()) return true;
    program_->look_at(member_);
    if (is_there()) return true;
    program_->look_now_and_then();
    check_peer(!incoming_->has_begun);
    return false;
  }

 private:
  bool is_there() const {
    if (incoming_->has_begun && incoming_->bytes != bytes_)
      throw Error(concat("rank ", route_.peer, " sends ", incoming_->bytes, " bytes to rank ", group_->rank,
                         ", which expects ", bytes_),
                  ErrorKind::peer);
    return incoming_->is_finished();
  }

  std::size_t bytes_;
  std::shared_ptr<TcpIncoming> incoming_;
};

// Reading one connection for news moves its messages, too.
class TcpAlarm : public Alarm {
 public:
  TcpAlarm(std::shared_ptr<TcpProgram> program, std::uint64_t family) : program_(std::move(program)), family_(family) {}
  std::string heard() override {
    const auto turn = program_->turn();
    program_->look();
    return program_->failure(family_);
  }
  void raise(const std::string& reason) noexcept override {
    const auto turn = program_->turn();
    program_->fail(family_, reason);
  }

 private:
  std::shared_ptr<TcpProgram> program_;
  std::uint64_t family_;
};

class TcpEndpoint : public TcpTransport {
 public:
  TcpEndpoint(std::shared_ptr<TcpProgram> program, TcpGroup group)
      : program_(std::move(program)), group_(std::make_shared<const TcpGroup>(std::move(group))) {
    const auto turn = program_->turn();
    program_->join_family(group_->family, group_->members);
  }
  ~TcpEndpoint() override {
    try {
      const auto turn = program_->turn();
      program_->leave(group_->id, group_->members);
      program_->leave_family(group_->family);
    } catch (const std::exception&) {}  // the others run into their time-outs
  }
  TcpEndpoint(const TcpEndpoint&) = delete;
  TcpEndpoint& operator=(const TcpEndpoint&) = delete;

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    check_route(to, "to");
    return std::make_unique<TcpSend>(program_, group_, Route{to, group_->id, tag}, data, bytes);
  }
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    check_route(from, "from");
    return std::make_unique<TcpReceive>(program_, group_, Route{from, group_->id, tag}, data, bytes);
  }

  void hold() override {
    const auto turn = program_->turn();
    program_->hold();
  }
  void let_go() noexcept override {
    const auto turn = program_->turn();
    program_->let_go();
  }

  std::unique_ptr<Transport> split(int color, int key) override {
    return split(color, key, [this](std::uint64_t) { return group_->family; });
  }
  std::unique_ptr<Transport> split_apart(int color, int key) override {
    return split(color, key, [](std::uint64_t id) { return id; });
  }
  std::unique_ptr<Transport> lifeline() override {
    return split(0, rank(), [](std::uint64_t) { return TcpProgram::kNoFamily; });
  }
  std::unique_ptr<Transport> among(const std::vector<int>& members, std::uint32_t number) override;
  std::vector<int> nodes() const override;
  std::optional<SharedAreas> share(std::size_t bytes) override;
  void announce(bool) override {
    const auto turn = program_->turn();
    program_->note_progress();
  }
  void idle(std::chrono::microseconds limit) override;
  bool idles_until_news() const override { return !shares_memory_; }
  void fail(const std::string& reason) noexcept override {
    const auto turn = program_->turn();
    program_->fail(group_->family, reason);
  }
  std::shared_ptr<Alarm> alarm() override { return std::make_shared<TcpAlarm>(program_, group_->family); }
  void check() override {
    const auto turn = program_->turn();
    program_->look_now_and_then();
    program_->throw_failure(group_->family);
  }

 private:
  // `family_of`: that of the group, by its number.
  std::unique_ptr<Transport> split(int color, int key, const std::function<std::uint64_t(std::uint64_t)>& family_of);

  // What a rank wants of a split.
  struct Wish {
    std::int64_t color, key;
    std::uint64_t next_group;
  };

  void check_route(int peer, const char* direction) {
    KEEL_CHECK(peer >= 0 && peer < size() && peer != rank(), "rank ", rank(), " of ", size(), " has no message ",
               direction, " rank ", peer);
    check();
  }
  // What every rank brings, by rank.
  template <class T>
  std::vector<T> exchange(const T& own);

  std::shared_ptr<TcpProgram> program_;
  std::shared_ptr<const TcpGroup> group_;
  bool shares_memory_ = false;
  std::uint64_t seen_ = 0;  // of the program's progress
  Clock::time_point waits_since_ = {};
};

void TcpEndpoint::idle(std::chrono::microseconds limit) {
  if (!shares_memory_) {
    program_->idle(limit);
    return;
  }
  const Clock::time_point now = Clock::now();
  {
    const auto turn = program_->turn();
    program_->look();
    if (seen_ != program_->progress()) {
      seen_ = program_->progress();
      waits_since_ = now;
    }
  }
  const auto waited = now - waits_since_;
  if (waited < kTimeToYield) {
    std::this_thread::yield();
    return;
  }
  const auto pause = std::chrono::duration_cast<std::chrono::microseconds>(waited / kShareOfSleep);
  program_->idle(std::min(std::max(pause, std::chrono::microseconds(kShortestSleep)), limit));
}

template <class T>
std::vector<T> TcpEndpoint::exchange(const T& own) {
  check();
  std::vector<T> all(group_->members.size());
  all[static_cast<std::size_t>(rank())] = own;
  std::vector<std::unique_ptr<Message>> messages;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const Route route{r, TcpProgram::internal(group_->id), 0};
    messages.push_back(std::make_unique<TcpSend>(program_, group_, route, &own, sizeof(T)));
    messages.push_back(
        std::make_unique<TcpReceive>(program_, group_, route, &all[static_cast<std::size_t>(r)], sizeof(T)));
  }
  for (;;) {
    std::erase_if(messages, [](const auto& message) { return message->has_finished(); });
    if (messages.empty()) return all;
    program_->idle(std::chrono::milliseconds(1));
  }
}

std::unique_ptr<Transport> TcpEndpoint::split(int color, int key,
                                              const std::function<std::uint64_t(std::uint64_t)>& family_of) {
  const std::vector<Wish> wishes = exchange(Wish{color, key, program_->next_group(group_->id)});
  const auto wish = [&](int r) -> const Wish& { return wishes[static_cast<std::size_t>(r)]; };
  std::vector<int> members;
  for (int r = 0; r < size(); ++r)
    if (wish(r).color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return wish(a).key < wish(b).key; });
  TcpGroup made{.id = wish(members.front()).next_group};
  made.family = family_of(made.id);
  if (members.front() == rank()) program_->count_group();
  made.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  for (const int member : members) made.members.push_back(group_->member(member));
  return std::make_unique<TcpEndpoint>(program_, std::move(made));
}

std::unique_ptr<Transport> TcpEndpoint::among(const std::vector<int>& members, std::uint32_t number) {
  TcpGroup made{.id = TcpProgram::group_among(group_->id, number)};
  made.family = made.id;
  made.rank = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
  for (const int member : members) made.members.push_back(group_->member(member));
  {
    const auto turn = program_->turn();
    program_->survive();
  }
  return std::make_unique<TcpEndpoint>(program_, std::move(made));
}

std::optional<SharedAreas> TcpEndpoint::share(std::size_t bytes) {
  auto shared = share_among(size(), rank(), bytes, [this](const auto& own) { return exchange(own); });
  shares_memory_ = shared.has_value();
  return shared;
}

std::vector<int> TcpEndpoint::nodes() const {
  std::map<std::uint64_t, int> numbers;  // by host: in the order of first ranks
  std::vector<int> nodes;
  for (const int member : group_->members)
    nodes.push_back(numbers.try_emplace(program_->host(member), static_cast<int>(numbers.size())).first->second);
  return nodes;
}

}  // namespace

std::vector<std::unique_ptr<TcpTransport>> make_tcp_transports(const TcpOptions& options, int n) {
  const auto program = std::make_shared<TcpProgram>(options.rank, meet(options));
  std::vector<std::unique_ptr<TcpTransport>> made;
  for (int i = 0; i < n; ++i) {
    TcpGroup all{.id = TcpProgram::first_group(static_cast<std::uint64_t>(i)), .rank = options.rank};
    all.family = all.id;
    for (int r = 0; r < options.size; ++r) all.members.push_back(r);
    made.push_back(std::make_unique<TcpEndpoint>(program, std::move(all)));
  }
  return made;
}

std::unique_ptr<TcpTransport> make_tcp_transport(const TcpOptions& options) {
  return std::move(make_tcp_transports(options, 1).front());
}

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<TcpTransport> transport, CommunicatorOptions options) {
  if (options.nodes.empty()) options.nodes = transport->nodes();
  return make_communicator(std::unique_ptr<Transport>(std::move(transport)), options);
}

std::unique_ptr<Communicator> make_tcp_communicator(const TcpOptions& tcp, const CommunicatorOptions& options) {
  return make_communicator(make_tcp_transport(tcp), options);
}

}  // namespace keel
