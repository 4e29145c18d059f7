#include "keel/dist/comm/slow_transport.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

// What has been sent and has not left; in the order of sending, which is that of leaving.
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

  explicit Queue(const Link& link) : link_(link) {}

  void add(const std::shared_ptr<Parcel>& parcel) {
    const auto now = Clock::now();
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
    while (!waiting_.empty() && waiting_.front()->arrives <= Clock::now()) {
      const std::shared_ptr<Parcel> parcel = std::move(waiting_.front());
      waiting_.pop_front();
      parcel->message = parcel->inner->send(parcel->to, parcel->tag, parcel->data, parcel->bytes);
      if (parcel->owner) parcel->message->keep(parcel->owner);
    }
  }
  std::chrono::microseconds until_next(std::chrono::microseconds limit) const {
    if (waiting_.empty()) return limit;
    const auto left = std::chrono::ceil<std::chrono::microseconds>(waiting_.front()->arrives - Clock::now());
    return std::clamp(left, std::chrono::microseconds(0), limit);
  }

 private:
  Link link_;
  Clock::time_point free_ = {};  // when the last byte has left
  std::deque<std::shared_ptr<Parcel>> waiting_;
};

class SentMessage : public Message {
 public:
  SentMessage(std::shared_ptr<Queue> queue, std::shared_ptr<Queue::Parcel> parcel)
      : queue_(std::move(queue)), parcel_(std::move(parcel)) {}
  ~SentMessage() override { queue_->remove(parcel_); }
  SentMessage(const SentMessage&) = delete;
  SentMessage& operator=(const SentMessage&) = delete;
  bool has_finished() override {
    queue_->hand_on();
    return parcel_->message != nullptr && parcel_->message->has_finished();
  }
  void keep(const std::shared_ptr<const void>& owner) override {
    parcel_->owner = owner;
    if (parcel_->message) parcel_->message->keep(owner);
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Queue::Parcel> parcel_;
};

class ReceivedMessage : public Message {
 public:
  ReceivedMessage(std::shared_ptr<Queue> queue, std::unique_ptr<Message> inner)
      : queue_(std::move(queue)), inner_(std::move(inner)) {}
  bool has_finished() override {
    queue_->hand_on();  // who waits for a message sends its own meanwhile
    return inner_->has_finished();
  }
  void keep(const std::shared_ptr<const void>& owner) override { inner_->keep(owner); }

 private:
  std::shared_ptr<Queue> queue_;
  std::unique_ptr<Message> inner_;
};

class SlowTransport : public Transport {
 public:
  SlowTransport(std::unique_ptr<Transport> inner, std::shared_ptr<Queue> queue)
      : queue_(std::move(queue)), inner_(std::move(inner)) {}
  ~SlowTransport() override { queue_->remove(inner_.get()); }
  SlowTransport(const SlowTransport&) = delete;
  SlowTransport& operator=(const SlowTransport&) = delete;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    inner_->check();
    auto parcel = std::make_shared<Queue::Parcel>(Queue::Parcel{{}, inner_.get(), to, tag, data, bytes});
    queue_->add(parcel);
    return std::make_unique<SentMessage>(queue_, std::move(parcel));
  }
  std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) override {
    return std::make_unique<ReceivedMessage>(queue_, inner_->receive(from, tag, data, bytes));
  }
  std::unique_ptr<Transport> split(int color, int key) override {
    return std::make_unique<SlowTransport>(inner_->split(color, key), queue_);
  }
  void idle(std::chrono::microseconds limit) override {
    queue_->hand_on();
    inner_->idle(queue_->until_next(limit));
  }
  void fail(const std::string& reason) noexcept override { inner_->fail(reason); }
  void check() override { inner_->check(); }
  bool allows_threads() const override { return inner_->allows_threads(); }
  void check_thread() const override { inner_->check_thread(); }
  std::shared_ptr<Alarm> alarm() override { return inner_->alarm(); }

 private:
  std::shared_ptr<Queue> queue_;
  std::unique_ptr<Transport> inner_;
};

}  // namespace

std::unique_ptr<Transport> make_slow_transport(std::unique_ptr<Transport> inner, const Link& link) {
  return std::make_unique<SlowTransport>(std::move(inner), std::make_shared<Queue>(link));
}

}  // namespace keel
