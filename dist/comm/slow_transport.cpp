#include "keel/dist/comm/slow_transport.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

// Of one link: what has been sent and has not left; in the order of sending, which is that of leaving.
class Queue {
 public:
  // A message, until it is over.
  struct Parcel {
    Clock::time_point arrives;
    Transport* inner;
    int to;
    std::uint64_t tag;
    const void* data;
    std::size_t bytes;
    std::shared_ptr<const void> owner = {};
    std::unique_ptr<Message> message = {};  // once it has been handed on
  };

  Queue(const Link& link, LinkClock clock) : link_(link), clock_(std::move(clock)) {}

  void add(const std::shared_ptr<Parcel>& parcel) {
    const auto now = clock_();
    const double seconds = link_.bandwidth > 0 ? static_cast<double>(parcel->bytes) / link_.bandwidth : 0;
    free_ = std::max(free_, now) + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    parcel->arrives = free_ + link_.delay;
    waiting_.push_back(parcel);
  }
  void remove(const std::shared_ptr<Parcel>& parcel) { std::erase(waiting_, parcel); }
  void remove(const Transport* inner) {
    std::erase_if(waiting_, [&](const auto& parcel) { return parcel->inner == inner; });
  }

  void hand_on() {
    while (!waiting_.empty() && waiting_.front()->arrives <= clock_()) {
      const std::shared_ptr<Parcel> parcel = std::move(waiting_.front());
      waiting_.pop_front();
      parcel->message = parcel->inner->send(parcel->to, parcel->tag, parcel->data, parcel->bytes);
      if (parcel->owner) parcel->message->keep(parcel->owner);
    }
  }
  std::chrono::microseconds until_next(std::chrono::microseconds limit) const {
    if (waiting_.empty()) return limit;
    const auto left = std::chrono::ceil<std::chrono::microseconds>(waiting_.front()->arrives - clock_());
    return std::clamp(left, std::chrono::microseconds(0), limit);
  }

 private:
  Link link_;
  LinkClock clock_;
  Clock::time_point free_ = {};  // when the last byte has left
  std::deque<std::shared_ptr<Parcel>> waiting_;
};

// Of one rank, for all its transports.
struct Queues {
  Queues(const Network& of, const LinkClock& clock) : network(of), close(of.link, clock), outer(of.outer, clock) {}

  Queue& between(int from, int to) { return network.is_outer(from, to) ? outer : close; }
  void hand_on() {
    close.hand_on();
    outer.hand_on();
  }
  std::chrono::microseconds until_next(std::chrono::microseconds limit) const {
    return outer.until_next(close.until_next(limit));
  }

  Network network;
  Queue close, outer;
};

class SentMessage : public Message {
 public:
  SentMessage(std::shared_ptr<Queues> queues, Queue& queue, std::shared_ptr<Queue::Parcel> parcel)
      : queues_(std::move(queues)), queue_(queue), parcel_(std::move(parcel)) {}
  ~SentMessage() override { queue_.remove(parcel_); }
  SentMessage(const SentMessage&) = delete;
  SentMessage& operator=(const SentMessage&) = delete;
  bool has_finished() override {
    queues_->hand_on();
    return parcel_->message != nullptr && parcel_->message->has_finished();
  }
  void keep(const std::shared_ptr<const void>& owner) override {
    parcel_->owner = owner;
    if (parcel_->message) parcel_->message->keep(owner);
  }

 private:
  std::shared_ptr<Queues> queues_;
  Queue& queue_;
  std::shared_ptr<Queue::Parcel> parcel_;
};

class ReceivedMessage : public Message {
 public:
  ReceivedMessage(std::shared_ptr<Queues> queues, std::unique_ptr<Message> inner)
      : queues_(std::move(queues)), inner_(std::move(inner)) {}
  bool has_finished() override {
    queues_->hand_on();  // who waits for a message sends its own meanwhile
    return inner_->has_finished();
  }
  void keep(const std::shared_ptr<const void>& owner) override { inner_->keep(owner); }

 private:
  std::shared_ptr<Queues> queues_;
  std::unique_ptr<Message> inner_;
};

class SlowTransport : public Transport {
 public:
  // `places`: of each rank, in the network.
  SlowTransport(std::unique_ptr<Transport> inner, std::vector<int> places, std::shared_ptr<Queues> queues)
      : queues_(std::move(queues)), places_(std::move(places)), inner_(std::move(inner)) {}
  ~SlowTransport() override {
    queues_->close.remove(inner_.get());
    queues_->outer.remove(inner_.get());
  }
  SlowTransport(const SlowTransport&) = delete;
  SlowTransport& operator=(const SlowTransport&) = delete;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    inner_->check();
    auto parcel = std::make_shared<Queue::Parcel>(Queue::Parcel{{}, inner_.get(), to, tag, data, bytes});
    Queue& queue = queues_->between(place_of(rank()), place_of(to));
    queue.add(parcel);
    return std::make_unique<SentMessage>(queues_, queue, std::move(parcel));
  }
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    return std::make_unique<ReceivedMessage>(queues_, inner_->receive(from, tag, data, bytes));
  }
  std::unique_ptr<Transport> split(int color, int key) override {
    std::unique_ptr<Transport> part = inner_->split(color, key);
    std::vector<int> places = places_in(*part);
    return std::make_unique<SlowTransport>(std::move(part), std::move(places), queues_);
  }
  void idle(std::chrono::microseconds limit) override {
    queues_->hand_on();
    inner_->idle(queues_->until_next(limit));
  }
  void fail(const std::string& reason) noexcept override { inner_->fail(reason); }
  void check() override { inner_->check(); }
  bool allows_threads() const override { return inner_->allows_threads(); }
  void check_thread() const override { inner_->check_thread(); }
  std::shared_ptr<Alarm> alarm() override { return inner_->alarm(); }

 private:
  int place_of(int rank) const { return places_.at(static_cast<std::size_t>(rank)); }
  // Of the ranks of a transport without messages so far: each tells the others.
  std::vector<int> places_in(Transport& part) const {
    std::vector<int> places(static_cast<std::size_t>(part.size()), place_of(rank()));
    std::vector<std::unique_ptr<Message>> messages;
    for (int r = 0; r < part.size(); ++r) {
      if (r == part.rank()) continue;
      messages.push_back(part.send(r, 0, &places[static_cast<std::size_t>(part.rank())], sizeof(int)));
      messages.push_back(part.receive(r, 0, &places[static_cast<std::size_t>(r)], sizeof(int)));
    }
    for (;;) {
      std::erase_if(messages, [](const auto& message) { return message->has_finished(); });
      if (messages.empty()) return places;
      part.idle(std::chrono::milliseconds(1));
    }
  }

  std::shared_ptr<Queues> queues_;
  std::vector<int> places_;
  std::unique_ptr<Transport> inner_;
};

}  // namespace

std::unique_ptr<Transport> make_slow_transport(std::unique_ptr<Transport> inner, const Network& network,
                                               const LinkClock& clock) {
  std::vector<int> places(static_cast<std::size_t>(inner->size()));
  std::iota(places.begin(), places.end(), 0);
  return std::make_unique<SlowTransport>(std::move(inner), std::move(places), std::make_shared<Queues>(network, clock));
}

}  // namespace keel
