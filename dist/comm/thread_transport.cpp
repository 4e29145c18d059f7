#include "keel/dist/comm/thread_transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "keel/dist/comm/waker.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Sender, receiver and tag: messages of one envelope keep their order.
using Envelope = std::tuple<int, int, std::uint64_t>;

using Clock = std::chrono::steady_clock;

// How often a rank that blocks looks whether another one failed.
constexpr auto kPatience = std::chrono::milliseconds(5);
constexpr std::size_t kAreaAlignment = 4096;  // a page
}  // namespace

// One side of a message that waits for the other.
struct ThreadHub::Side {
  std::byte* memory = nullptr;  // a sender's is only read
  std::size_t bytes = 0;
  bool copying = false;  // by the other side's thread
  bool finished = false;
};

// Shared by a hub and all that were split off from it: their failure, and all their ranks.
class ThreadHub::Family {
 public:
  // Of a lifeline: nothing that is told fails it.
  explicit Family(bool is_deaf = false) : is_deaf_(is_deaf) {}

  void fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (is_deaf_ || !reason_.empty()) return;
    reason_ = reason;
    raised_.store(true, std::memory_order_release);
    for (const std::shared_ptr<Waker>& waker : wakers_) waker->wake();
  }
  std::string reason() {
    if (!raised_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  void check() {
    if (raised_.load(std::memory_order_acquire)) throw Error(MessageLines{reason()}, ErrorKind::peer);
  }

  bool is_deaf() const { return is_deaf_; }
  // Of a rank of the first group.
  void add(const std::shared_ptr<Waker>& waker) {
    const std::lock_guard lock(mutex_);
    wakers_.push_back(waker);
  }

 private:
  const bool is_deaf_;
  std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> raised_ = false;
  std::vector<std::shared_ptr<Waker>> wakers_;
};

// Those of one split() that have come, by rank, and the hubs of their groups once all have.
struct ThreadHub::Split {
  enum class Kind : unsigned char { one_family, apart, lifeline };
  struct Member {
    int color, key;
  };
  std::map<int, Member> members;
  std::map<int, ThreadHub> groups;  // by colour
  int gone = 0;

  // The members of a colour in their new order.
  std::vector<int> group(int color) const {
    std::vector<int> ranks;
    for (const auto& [rank, member] : members)
      if (member.color == color) ranks.push_back(rank);
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return members.at(a).key < members.at(b).key; });
    return ranks;
  }
};

// A message is copied, outside the lock, by the side that comes second.
struct ThreadHub::State {
  State(int size, std::shared_ptr<Family> family, const std::shared_ptr<State>& lifeline = nullptr,
        std::vector<int> members = {})
      : size(size),
        lifeline(lifeline),
        members(std::move(members)),
        family(std::move(family)),
        wakers(static_cast<std::size_t>(size)),
        gone(static_cast<std::size_t>(size)) {}

  const int size;
  // Where this is a group of some ranks of a lifeline: that one, which has its groups, and their ranks there. Who has
  // left it cannot come.
  const std::weak_ptr<State> lifeline;
  const std::vector<int> members;
  const std::shared_ptr<Family> family;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Waker>> wakers;                            // by rank; none where it has not come yet
  std::map<Envelope, std::list<std::shared_ptr<Side>>> sends, receives;  // that wait
  std::vector<std::optional<Clock::time_point>> gone;                    // by rank: from when on
  std::map<int, Split> splits;                                           // by number
  std::map<std::uint32_t, ThreadHub> groups;                             // of a lifeline, by number
  std::shared_ptr<std::byte> areas;                                      // of all ranks

  // Under the lock.
  void wake_all() {
    changed.notify_all();
    for (const std::shared_ptr<Waker>& waker : wakers)
      if (waker) waker->wake();
  }
  void fail(const std::string& reason) {
    family->fail(reason);
    const std::lock_guard lock(mutex);
    changed.notify_all();
  }
  bool has_left(int rank) const {
    const auto& since = gone[static_cast<std::size_t>(rank)];
    if (since && Clock::now() >= *since) return true;
    if (members.empty()) return false;
    const std::shared_ptr<State> whole = lifeline.lock();
    if (!whole) return true;  // all have left it
    const std::lock_guard lock(whole->mutex);
    return whole->has_left(members[static_cast<std::size_t>(rank)]);
  }
  std::shared_ptr<Side> post(const Envelope& envelope, std::byte* memory, std::size_t bytes, bool is_send);
};

std::shared_ptr<ThreadHub::Side> ThreadHub::State::post(const Envelope& envelope, std::byte* memory, std::size_t bytes,
                                                        bool is_send) {
  auto mine = std::make_shared<Side>(Side{memory, bytes});
  std::unique_lock lock(mutex);
  auto& others = is_send ? receives : sends;
  const auto waiting = others.find(envelope);
  if (waiting == others.end()) {
    (is_send ? sends : receives)[envelope].push_back(mine);
    return mine;
  }
  const std::shared_ptr<Side> other = waiting->second.front();
  KEEL_CHECK(other->bytes == bytes, "rank ", std::get<0>(envelope), " sends ", is_send ? bytes : other->bytes,
             " bytes to rank ", std::get<1>(envelope), ", which expects ", is_send ? other->bytes : bytes);
  waiting->second.pop_front();
  if (waiting->second.empty()) others.erase(waiting);
  if (bytes != 0) {
    other->copying = true;
    lock.unlock();
    is_send ? std::memcpy(other->memory, memory, bytes) : std::memcpy(memory, other->memory, bytes);
    lock.lock();
    other->copying = false;
  }
  mine->finished = other->finished = true;
  changed.notify_all();
  const int peer = is_send ? std::get<1>(envelope) : std::get<0>(envelope);
  if (const auto& waker = wakers[static_cast<std::size_t>(peer)]) waker->wake();
  return mine;
}

class ThreadHub::Posted : public Message {
 public:
  Posted(std::shared_ptr<State> hub, const Envelope& envelope, std::shared_ptr<Side> side, bool is_send)
      : hub_(std::move(hub)), envelope_(envelope), side_(std::move(side)), is_send_(is_send) {}

  ~Posted() override {
    std::unique_lock lock(hub_->mutex);
    hub_->changed.wait(lock, [&] { return !side_->copying; });
    if (side_->finished) return;
    auto& mine = is_send_ ? hub_->sends : hub_->receives;
    const auto at = mine.find(envelope_);
    at->second.remove(side_);
    if (at->second.empty()) mine.erase(at);
  }

  bool has_finished() override {
    const std::lock_guard lock(hub_->mutex);
    if (side_->finished) return true;
    if (side_->copying) return false;
    hub_->family->check();
    const int peer = is_send_ ? std::get<1>(envelope_) : std::get<0>(envelope_);
    if (hub_->has_left(peer))
      throw Error(concat("rank ", peer, " has left while rank ",
                         is_send_ ? std::get<0>(envelope_) : std::get<1>(envelope_), " waits for it"),
                  ErrorKind::peer);
    return false;
  }

 private:
  std::shared_ptr<State> hub_;
  Envelope envelope_;
  std::shared_ptr<Side> side_;
  bool is_send_;
};

class ThreadHub::HubAlarm : public Alarm {
 public:
  explicit HubAlarm(std::shared_ptr<State> hub) : hub_(std::move(hub)) {}
  std::string heard() override { return hub_->family->reason(); }
  void raise(const std::string& reason) noexcept override { hub_->fail(reason); }

 private:
  std::shared_ptr<State> hub_;
};

class ThreadHub::Endpoint : public Transport {
 public:
  Endpoint(std::shared_ptr<State> hub, int rank, std::shared_ptr<Waker> waker)
      : hub_(std::move(hub)), rank_(rank), waker_(std::move(waker)) {
    const std::lock_guard lock(hub_->mutex);
    hub_->wakers[static_cast<std::size_t>(rank_)] = waker_;
  }
  ~Endpoint() override {
    const std::lock_guard lock(hub_->mutex);
    const bool may_yet_tell = std::uncaught_exceptions() > exceptions_ && !hub_->family->is_deaf();
    hub_->gone[static_cast<std::size_t>(rank_)] = Clock::now() + (may_yet_tell ? kTimeToTell : Clock::duration::zero());
    hub_->wake_all();
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

  std::unique_ptr<Transport> split(int color, int key) override { return split(color, key, Split::Kind::one_family); }
  std::unique_ptr<Transport> split_apart(int color, int key) override { return split(color, key, Split::Kind::apart); }
  std::unique_ptr<Transport> lifeline() override { return split(0, rank_, Split::Kind::lifeline); }
  std::unique_ptr<Transport> among(const std::vector<int>& members, std::uint32_t number) override;

  std::optional<SharedAreas> share(std::size_t bytes) override;
  void announce(bool for_others) override {
    if (!for_others) return;
    const std::lock_guard lock(hub_->mutex);
    hub_->wake_all();
  }

  void idle(std::chrono::microseconds limit) override {
    waker_->wait(std::min<std::chrono::microseconds>(limit, kPatience));
  }
  void fail(const std::string& reason) noexcept override { hub_->fail(reason); }
  void check() override { hub_->family->check(); }
  std::shared_ptr<Alarm> alarm() override { return std::make_shared<HubAlarm>(hub_); }

 private:
  std::unique_ptr<Message> post(const Envelope& envelope, int peer, std::byte* memory, std::size_t bytes,
                                bool is_send) {
    KEEL_CHECK(peer >= 0 && peer < size() && peer != rank_, "rank ", rank_, " of ", size(), " has no message ",
               is_send ? "to" : "from", " rank ", peer);
    check();
    return std::make_unique<Posted>(hub_, envelope, hub_->post(envelope, memory, bytes, is_send), is_send);
  }

  std::unique_ptr<Transport> split(int color, int key, Split::Kind kind);

  std::shared_ptr<State> hub_;
  int rank_;
  int splits_ = 0;
  std::shared_ptr<Waker> waker_;  // of this rank, in all its groups
  const int exceptions_ = std::uncaught_exceptions();
};

// Whoever comes first makes them for all.
std::optional<SharedAreas> ThreadHub::Endpoint::share(std::size_t bytes) {
  const std::size_t each = (bytes + kAreaAlignment - 1) / kAreaAlignment * kAreaAlignment;
  const std::lock_guard lock(hub_->mutex);
  if (hub_->areas == nullptr) {
    // Zeros that the system gives, so that what nobody touches takes no memory.
    std::size_t room = each * static_cast<std::size_t>(size()) + kAreaAlignment;
    const std::shared_ptr<void> memory(std::calloc(room, 1), std::free);
    if (memory == nullptr) throw std::bad_alloc();
    void* begin = memory.get();
    hub_->areas = {memory, static_cast<std::byte*>(std::align(kAreaAlignment, each, begin, room))};
  }
  SharedAreas shared{.owner = hub_->areas, .one_address_space = true};
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r)
    shared.areas.push_back(hub_->areas.get() + r * each);
  return shared;
}

std::unique_ptr<Transport> ThreadHub::Endpoint::among(const std::vector<int>& members, std::uint32_t number) {
  const auto place = std::ranges::find(members, rank_) - members.begin();
  std::shared_ptr<State> group;
  {
    const std::lock_guard lock(hub_->mutex);
    auto made = hub_->groups.find(number);
    if (made == hub_->groups.end())
      made = hub_->groups
                 .emplace(number, ThreadHub(std::make_shared<State>(static_cast<int>(members.size()),
                                                                    std::make_shared<Family>(), hub_, members)))
                 .first;
    group = made->second.state_;
  }
  group->family->add(waker_);
  return std::make_unique<Endpoint>(std::move(group), static_cast<int>(place), waker_);
}

std::unique_ptr<Transport> ThreadHub::Endpoint::split(int color, int key, Split::Kind kind) {
  const int number = splits_++;
  std::unique_lock lock(hub_->mutex);
  Split& split = hub_->splits[number];
  split.members[rank_] = {color, key};
  if (static_cast<int>(split.members.size()) == size()) {
    for (const auto& [rank, member] : split.members) {
      if (split.groups.contains(member.color)) continue;
      const auto members = static_cast<int>(split.group(member.color).size());
      const auto family =
          kind == Split::Kind::one_family ? hub_->family : std::make_shared<Family>(kind == Split::Kind::lifeline);
      split.groups.emplace(member.color, ThreadHub(std::make_shared<State>(members, family)));
    }
    hub_->changed.notify_all();
  }
  while (split.groups.empty()) {
    hub_->changed.wait_for(lock, kPatience);
    if (!split.groups.empty()) break;  // the others have their ends, and count on this one
    hub_->family->check();
    for (int r = 0; r < size(); ++r)
      if (hub_->has_left(r) && !split.members.contains(r))
        throw Error(concat("rank ", r, " has left while rank ", rank_, " splits the group with it"), ErrorKind::peer);
  }
  const std::vector<int> group = split.group(color);
  const auto place = std::find(group.begin(), group.end(), rank_) - group.begin();
  const std::shared_ptr<State>& own = split.groups.at(color).state_;
  if (kind != Split::Kind::one_family) own->family->add(waker_);
  auto end = std::make_unique<Endpoint>(own, static_cast<int>(place), waker_);
  if (++split.gone == size()) hub_->splits.erase(number);
  return end;
}

ThreadHub::ThreadHub(int size) {
  KEEL_CHECK(size > 0, "a group of ranks needs one at least, got ", size);
  state_ = std::make_shared<State>(size, std::make_shared<Family>());
}

int ThreadHub::size() const { return state_->size; }

std::unique_ptr<Transport> ThreadHub::connect(int rank) const {
  KEEL_CHECK(rank >= 0 && rank < state_->size, "there is no rank ", rank, " of ", state_->size);
  const auto waker = std::make_shared<Waker>();
  state_->family->add(waker);
  return std::make_unique<Endpoint>(state_, rank, waker);
}

}  // namespace keel
