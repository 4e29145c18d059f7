#include "keel/dist/comm/thread_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// Sender, receiver and tag: messages of one channel keep their order.
using Channel = std::tuple<int, int, std::uint64_t>;

// One side of a message that waits for the other.
struct Side {
  std::byte* memory = nullptr;  // a sender's is only read
  std::size_t bytes = 0;
  bool finished = false;
};

}  // namespace

// A message is copied under the lock by the side that comes second. Ranks are few, and their copies share one memory.
struct ThreadHub::State {
  explicit State(int size) : size(size), left(static_cast<std::size_t>(size)) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t changes = 0;
  std::map<Channel, std::list<std::shared_ptr<Side>>> sends, receives;  // that wait
  std::vector<char> left;                                               // by rank
  std::optional<std::string> reason;

  void check() const {
    if (reason) throw Error(*reason, ErrorKind::peer);
  }
  void notify() {
    ++changes;
    changed.notify_all();
  }
  std::shared_ptr<Side> post(const Channel& channel, std::byte* memory, std::size_t bytes, bool is_send);
};

std::shared_ptr<Side> ThreadHub::State::post(const Channel& channel, std::byte* memory, std::size_t bytes,
                                             bool is_send) {
  auto mine = std::make_shared<Side>(Side{memory, bytes});
  auto& others = is_send ? receives : sends;
  const auto waiting = others.find(channel);
  if (waiting == others.end()) {
    (is_send ? sends : receives)[channel].push_back(mine);
    return mine;
  }
  const std::shared_ptr<Side> other = waiting->second.front();
  KEEL_CHECK(other->bytes == bytes, "rank ", std::get<0>(channel), " sends ", is_send ? bytes : other->bytes,
             " bytes to rank ", std::get<1>(channel), ", which expects ", is_send ? other->bytes : bytes);
  waiting->second.pop_front();
  if (waiting->second.empty()) others.erase(waiting);
  if (bytes != 0) is_send ? std::memcpy(other->memory, memory, bytes) : std::memcpy(memory, other->memory, bytes);
  mine->finished = other->finished = true;
  notify();
  return mine;
}

class ThreadHub::Posted : public Message {
 public:
  Posted(std::shared_ptr<State> hub, const Channel& channel, std::shared_ptr<Side> side, bool is_send)
      : hub_(std::move(hub)), channel_(channel), side_(std::move(side)), is_send_(is_send) {}

  ~Posted() override {
    const std::lock_guard lock(hub_->mutex);
    if (side_->finished) return;
    auto& mine = is_send_ ? hub_->sends : hub_->receives;
    const auto at = mine.find(channel_);
    at->second.remove(side_);
    if (at->second.empty()) mine.erase(at);
  }

  bool has_finished() override {
    const std::lock_guard lock(hub_->mutex);
    if (side_->finished) return true;
    hub_->check();
    const int peer = is_send_ ? std::get<1>(channel_) : std::get<0>(channel_);
    if (hub_->left[static_cast<std::size_t>(peer)] != 0)
      throw Error(concat("rank ", peer, " has left while rank ",
                         is_send_ ? std::get<0>(channel_) : std::get<1>(channel_), " waits for it"),
                  ErrorKind::peer);
    return false;
  }

 private:
  std::shared_ptr<State> hub_;
  Channel channel_;
  std::shared_ptr<Side> side_;
  bool is_send_;
};

class ThreadHub::Endpoint : public Transport {
 public:
  Endpoint(std::shared_ptr<State> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~Endpoint() override {
    const std::lock_guard lock(hub_->mutex);
    hub_->left[static_cast<std::size_t>(rank_)] = 1;
    hub_->notify();
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return hub_->size; }

  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    return post({rank_, to, tag}, to, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, true);
  }
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    return post({from, rank_, tag}, from, static_cast<std::byte*>(data), bytes, false);
  }

  void idle(std::chrono::microseconds limit) override {
    std::unique_lock lock(hub_->mutex);
    hub_->changed.wait_for(lock, limit, [&] { return hub_->changes != seen_; });
    seen_ = hub_->changes;
  }
  void fail(const std::string& reason) noexcept override {
    const std::lock_guard lock(hub_->mutex);
    if (!hub_->reason) hub_->reason = reason;
    hub_->notify();
  }
  void check() override {
    const std::lock_guard lock(hub_->mutex);
    hub_->check();
  }

 private:
  std::unique_ptr<Message> post(const Channel& channel, int peer, std::byte* memory, std::size_t bytes, bool is_send) {
    KEEL_CHECK(peer >= 0 && peer < size() && peer != rank_, "rank ", rank_, " of ", size(), " has no message ",
               is_send ? "to" : "from", " rank ", peer);
    const std::lock_guard lock(hub_->mutex);
    hub_->check();
    return std::make_unique<Posted>(hub_, channel, hub_->post(channel, memory, bytes, is_send), is_send);
  }

  std::shared_ptr<State> hub_;
  int rank_;
  std::uint64_t seen_ = 0;
};

ThreadHub::ThreadHub(int size) : state_(std::make_shared<State>(size)) {
  KEEL_CHECK(size > 0, "a group of ranks needs one at least, got ", size);
}

int ThreadHub::size() const { return state_->size; }

std::unique_ptr<Transport> ThreadHub::connect(int rank) const {
  KEEL_CHECK(rank >= 0 && rank < state_->size, "there is no rank ", rank, " of ", state_->size);
  return std::make_unique<Endpoint>(state_, rank);
}

}  // namespace keel
