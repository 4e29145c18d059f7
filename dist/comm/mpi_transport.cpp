#include "keel/dist/comm/mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "keel/dist/comm/mpi_call.h"
#include "keel/dist/comm/mpi_program.h"
#include "keel/dist/comm/share_among.h"

namespace keel {
namespace {

using Clock = MpiProgram::Clock;

// The MPI tag of a split's messages: the largest that MPI promises.
constexpr int kSplitTag = 32'767;
// A rank that waits gives its core to others at each poll for so long, then sleeps between polls for a small part of
// the time that it has waited.
constexpr auto kTimeToYield = std::chrono::milliseconds(2);
constexpr auto kShortestSleep = std::chrono::microseconds(50);
constexpr int kShareOfSleep = 16;

class MpiMessage : public Message {
 public:
  struct Route {
    int peer;
    int mpi_tag;
    std::uint64_t tag;
    bool is_send;
  };

  MpiMessage(std::shared_ptr<MpiProgram> program, std::shared_ptr<MpiGroup> group, const Route& route,
             std::byte* memory, std::size_t bytes, std::size_t largest)
      : program_(std::move(program)),
        group_(std::move(group)),
        route_(route),
        memory_(memory),
        bytes_(bytes),
        largest_(largest),
        flight_(std::make_unique<MpiFlight>()) {
    auto& [tag, count] = tags().try_emplace(route.mpi_tag, route.tag, 0).first->second;
    if (tag != route.tag)
      throw Error(concat("rank ", group_->rank, " has too many messages ", route.is_send ? "to" : "from", " rank ",
                         route.peer, " under way: tags ", tag, " and ", route.tag, " are one for MPI"),
                  ErrorKind::unsupported);
    ++count;
    std::byte* at = memory;
    if (bytes <= MpiFlight::kSmall) {
      at = flight_->own.data();
      if (route.is_send && bytes != 0) std::memcpy(at, memory, bytes);
    }
    do {
      post(at);
      at += length_of(flight_->requests.size() - 1);
    } while (flight_->requests.size() * largest_ < bytes_);
  }

  ~MpiMessage() override {
    if (!flight_) return;
    group_->gave_up = true;
    if (!mpi_runs()) {
      static_cast<void>(flight_.release());  // MPI is over, and who knows what it left behind
      return;
    }
    if (!route_.is_send)
      for (std::size_t i = flight_->finished; i < flight_->requests.size(); ++i)
        if (flight_->requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&flight_->requests[i]);
    if (!flight_->is_over()) program_->keep(std::move(flight_));
  }
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;

  bool has_finished() override {
    if (!flight_) return true;
    for (; flight_->finished < flight_->requests.size(); ++flight_->finished) {
      int flag = 0;
      MPI_Status status;
      const int code = MPI_Test(&flight_->requests[flight_->finished], &flag, &status);
      if (code != MPI_SUCCESS) explain(code);
      if (!flag) {
        program_->look_now_and_then();
        check_peer();
        return false;
      }
      if (!route_.is_send) check_length(status);
      program_->note_progress();
    }
    finish();
    return true;
  }

  void keep(const std::shared_ptr<const void>& owner) override {
    if (flight_) flight_->owner = owner;
  }

 private:
  std::unordered_map<int, std::pair<std::uint64_t, int>>& tags() {
    MpiGroup::Peer& peer = group_->peers[static_cast<std::size_t>(route_.peer)];
    return route_.is_send ? peer.sending : peer.receiving;
  }
  std::size_t length_of(std::size_t i) const { return std::min(largest_, bytes_ - i * largest_); }

  void post(std::byte* at) {
    const auto length = static_cast<int>(length_of(flight_->requests.size()));
    MPI_Request& request = flight_->requests.emplace_back(MPI_REQUEST_NULL);
    if (route_.is_send)
      mpi_call("MPI_Isend", ErrorKind::peer,
               MPI_Isend(at, length, MPI_BYTE, route_.peer, route_.mpi_tag, group_->comm, &request));
    else
      mpi_call("MPI_Irecv", ErrorKind::peer,
               MPI_Irecv(at, length, MPI_BYTE, route_.peer, route_.mpi_tag, group_->comm, &request));
  }

  void finish() {
    if (!route_.is_send && bytes_ != 0 && bytes_ <= MpiFlight::kSmall)
      std::memcpy(memory_, flight_->own.data(), bytes_);
    MpiGroup::Peer& peer = group_->peers[static_cast<std::size_t>(route_.peer)];
    ++(route_.is_send ? peer.sent : peer.received);
    const auto at = tags().find(route_.mpi_tag);
    if (--at->second.second == 0) tags().erase(at);
    flight_.reset();
  }

  void check_peer() const {
    program_->throw_failure();
    const MpiProgram::Left* left =
        program_->departure(group_->id, group_->members[static_cast<std::size_t>(route_.peer)]);
    if (left == nullptr) return;
    // What a rank sent before it left may arrive after the news, and what was sent to it may just have arrived there.
    if (!route_.is_send && !left->abruptly &&
        group_->peers[static_cast<std::size_t>(route_.peer)].received < left->sent)
      return;
    if ((route_.is_send || left->abruptly) && Clock::now() - left->when < kTimeToTell) return;
    throw Error(concat("rank ", route_.peer, " has left while rank ", group_->rank, " waits for it"), ErrorKind::peer);
  }

  [[noreturn]] void explain(int code) const {
    int kind = 0;
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE)
      throw Error(concat("rank ", route_.peer, " sends more than the ", length_of(flight_->finished),
                         " bytes that rank ", group_->rank, " expects"),
                  ErrorKind::peer);
    mpi_call("MPI_Test", ErrorKind::peer, code);
    throw Error("MPI_Test failed", ErrorKind::peer);
  }

  void check_length(const MPI_Status& status) const {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    const std::size_t expected = length_of(flight_->finished);
    if (static_cast<std::size_t>(count) != expected)
      throw Error(
          concat("rank ", route_.peer, " sends ", count, " bytes to rank ", group_->rank, ", which expects ", expected),
          ErrorKind::peer);
  }

  std::shared_ptr<MpiProgram> program_;
  std::shared_ptr<MpiGroup> group_;
  Route route_;
  std::byte* memory_;
  std::size_t bytes_, largest_;
  std::unique_ptr<MpiFlight> flight_;  // none once it has finished
};

class MpiEndpoint : public MpiTransport {
 public:
  MpiEndpoint(std::shared_ptr<MpiProgram> program, std::shared_ptr<MpiGroup> group, const MpiOptions& options)
      : program_(std::move(program)), group_(std::move(group)), options_(options) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) only_thread_ = std::this_thread::get_id();
  }

  ~MpiEndpoint() override {
    if (!mpi_runs()) return;
    try {
      program_->leave(group_, std::uncaught_exceptions() > exceptions_);
    } catch (const std::exception&) {}  // the others run into their time-outs
  }
  MpiEndpoint(const MpiEndpoint&) = delete;
  MpiEndpoint& operator=(const MpiEndpoint&) = delete;

  bool allows_threads() const override { return !only_thread_; }
  void check_thread() const override { check_mpi_thread(!only_thread_ || *only_thread_ == std::this_thread::get_id()); }
  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    return post({to, mpi_tag(tag), tag, true}, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes);
  }
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    return post({from, mpi_tag(tag), tag, false}, static_cast<std::byte*>(data), bytes);
  }

  std::unique_ptr<Transport> split(int color, int key) override;
  std::vector<int> nodes() override;
  std::optional<SharedAreas> share(std::size_t bytes) override;
  void announce(bool) override { program_->note_progress(); }
  void idle(std::chrono::microseconds limit) override;
  void fail(const std::string& reason) noexcept override { program_->fail(reason); }
  void check() override {
    if (!mpi_runs()) throw Error("MPI has ended before the transport that uses it", ErrorKind::internal);
    check_thread();
    program_->look_now_and_then();  // idle() always does; asking MPI takes longer than a small collective
    program_->throw_failure();
  }

 private:
  // What a rank wants of a split.
  struct Wish {
    std::int64_t color, key;
    std::uint64_t next_group;
  };

  int mpi_tag(std::uint64_t tag) const { return static_cast<int>(tag % static_cast<std::uint64_t>(options_.tags)); }
  std::unique_ptr<Message> post(const MpiMessage::Route& route, std::byte* memory, std::size_t bytes) {
    KEEL_CHECK(route.peer >= 0 && route.peer < size() && route.peer != rank(), "rank ", rank(), " of ", size(),
               " has no message ", route.is_send ? "to" : "from", " rank ", route.peer);
    check();
    return std::make_unique<MpiMessage>(program_, group_, route, memory, bytes, options_.largest_message);
  }
  // What every rank brings, by rank.
  template <class T>
  std::vector<T> exchange(const T& own);

  std::shared_ptr<MpiProgram> program_;
  std::shared_ptr<MpiGroup> group_;
  MpiOptions options_;
  std::optional<std::thread::id> only_thread_;  // that may call MPI; none: any, one at a time
  std::uint64_t seen_ = 0;                      // of the program's progress
  Clock::time_point waits_since_ = {};
  int exceptions_ = std::uncaught_exceptions();
};

void MpiEndpoint::idle(std::chrono::microseconds limit) {
  program_->look();
  const Clock::time_point now = Clock::now();
  if (seen_ != program_->progress()) {
    seen_ = program_->progress();
    waits_since_ = now;
  }
  const auto waited = now - waits_since_;
  if (waited < kTimeToYield) {
    std::this_thread::yield();
    return;
  }
  const auto pause = std::max<Clock::duration>(waited / kShareOfSleep, kShortestSleep);
  std::this_thread::sleep_for(std::min<Clock::duration>(pause, limit));
}

template <class T>
std::vector<T> MpiEndpoint::exchange(const T& own) {
  std::vector<T> all(group_->members.size());
  all[static_cast<std::size_t>(rank())] = own;
  std::vector<std::unique_ptr<Message>> messages;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    messages.push_back(
        post({r, kSplitTag, kSplitTag, true}, reinterpret_cast<std::byte*>(const_cast<T*>(&own)), sizeof(T)));
    messages.push_back(post({r, kSplitTag, kSplitTag, false},
                            reinterpret_cast<std::byte*>(&all[static_cast<std::size_t>(r)]), sizeof(T)));
  }
  while (true) {
    std::erase_if(messages, [](const auto& message) { return message->has_finished(); });
    if (messages.empty()) return all;
    idle(std::chrono::milliseconds(1));
  }
}

// Segments go away with the last process that has them, however it ends; MPI's shared windows would need all ranks to
// be freed.
std::optional<SharedAreas> MpiEndpoint::share(std::size_t bytes) {
  return share_among(size(), rank(), bytes, [this](const auto& own) { return exchange(own); });
}

// MPI_Comm_split can neither time out nor hear of failures, so ranks meet before they call it.
std::unique_ptr<Transport> MpiEndpoint::split(int color, int key) {
  const std::vector<Wish> wishes = exchange(Wish{color, key, program_->next_group()});
  check();
  std::vector<std::int64_t> colors;
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    const std::int64_t wanted = wishes[static_cast<std::size_t>(r)].color;
    if (wanted == color) members.push_back(r);
    colors.push_back(wanted);
  }
  std::sort(colors.begin(), colors.end());
  colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
  // MPI's colours must not be negative.
  const auto place = std::lower_bound(colors.begin(), colors.end(), color) - colors.begin();
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  MPI_Comm comm = MPI_COMM_NULL;
  mpi_call("MPI_Comm_split", ErrorKind::peer, MPI_Comm_split(group_->comm, static_cast<int>(place), key, &comm));
  const std::uint64_t id = wishes[static_cast<std::size_t>(members.front())].next_group;
  if (members.front() == rank()) program_->count_group();
  for (int& member : members) member = group_->members[static_cast<std::size_t>(member)];
  return std::make_unique<MpiEndpoint>(program_, std::make_shared<MpiGroup>(id, comm, std::move(members)), options_);
}

std::vector<int> MpiEndpoint::nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  mpi_call("MPI_Comm_split_type", ErrorKind::peer,
           MPI_Comm_split_type(group_->comm, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node));
  int first = rank();  // of the node, which keeps the order of the ranks
  std::vector<int> firsts(group_->members.size());
  mpi_call("MPI_Bcast", ErrorKind::peer, MPI_Bcast(&first, 1, MPI_INT, 0, node));
  mpi_call("MPI_Allgather", ErrorKind::peer,
           MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, group_->comm));
  mpi_call("MPI_Comm_free", ErrorKind::internal, MPI_Comm_free(&node));
  std::map<int, int> numbers;  // by first rank: in its order
  std::vector<int> nodes;
  for (const int r : firsts) nodes.push_back(numbers.try_emplace(r, static_cast<int>(numbers.size())).first->second);
  return nodes;
}

}  // namespace

std::unique_ptr<MpiTransport> make_mpi_transport(MPI_Comm communicator, const MpiOptions& options) {
  check_callers(communicator);
  KEEL_CHECK(options.tags >= 1 && options.tags <= kSplitTag, "between 1 and ", kSplitTag, " MPI tags can be used, got ",
             options.tags);
  KEEL_CHECK(options.largest_message >= 1 && options.largest_message <= std::numeric_limits<int>::max(),
             "an MPI message has between 1 and ", std::numeric_limits<int>::max(), " bytes, got ",
             options.largest_message);
  const auto program = std::make_shared<MpiProgram>(communicator);
  MPI_Comm comm = MPI_COMM_NULL;
  mpi_call("MPI_Comm_dup", ErrorKind::internal, MPI_Comm_dup(program->comm(), &comm));
  std::vector<int> members;
  for (int r = 0; r < program->size(); ++r) members.push_back(r);
  const std::uint64_t id = 0;  // rank 0 is the first
  program->count_group();
  return std::make_unique<MpiEndpoint>(program, std::make_shared<MpiGroup>(id, comm, std::move(members)), options);
}

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm communicator, CommunicatorOptions options,
                                                    const MpiOptions& mpi) {
  auto transport = make_mpi_transport(communicator, mpi);
  if (options.nodes.empty()) options.nodes = transport->nodes();
  return make_communicator(std::move(transport), options);
}

}  // namespace keel
