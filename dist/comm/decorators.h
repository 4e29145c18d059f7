#pragma once
// Communicators around communicators: for tests that disturb one, and for measurements that watch one.

#include <chrono>
#include <functional>
#include <memory>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/lifeline.h"

namespace keel {

// Hands everything on. The inner one must outlive it.
class CommunicatorDecorator : public Communicator {
 public:
  explicit CommunicatorDecorator(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::vector<int>& nodes() const override { return inner_.nodes(); }
  std::chrono::milliseconds timeout() const override { return inner_.timeout(); }
  Work begin(const Collective& collective) override { return inner_.begin(collective); }
  void poll() override { inner_.poll(); }
  std::unique_ptr<Communicator> split(int color, int key) override { return inner_.split(color, key); }
  std::unique_ptr<Communicator> split_apart(int color, int key) override { return inner_.split_apart(color, key); }
  std::unique_ptr<Communicator> regroup(const Regroup& wish) override { return inner_.regroup(wish); }
  std::unique_ptr<Lifeline> lifeline(const std::vector<int>& groups) override { return inner_.lifeline(groups); }
  void attempt(const std::function<void()>& f) override { inner_.attempt(f); }
  std::int64_t losses() const override { return inner_.losses(); }
  Tensor allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose) override {
    return inner_.allocate(context, count, dtype, purpose);
  }
  Traffic traffic() const override { return inner_.traffic(); }
  std::span<const std::string> ways() const override { return inner_.ways(); }
  void use_way(std::size_t way) override { inner_.use_way(way); }
  void fail(const std::string& reason) noexcept override { inner_.fail(reason); }
  void set_activity(const std::string& activity) override { inner_.set_activity(activity); }
  bool allows_threads() const override { return inner_.allows_threads(); }
  void check_thread() const override { inner_.check_thread(); }
  std::shared_ptr<Alarm> alarm() override { return inner_.alarm(); }

 protected:
  Communicator& inner_;
};

// Changes one element of each result on one rank, once it is there, so that a test can see its check fail. Works on
// results in the processor's memory alone.
class CorruptedCommunicator : public CommunicatorDecorator {
 public:
  CorruptedCommunicator(Communicator& inner, int rank, std::int64_t element)
      : CommunicatorDecorator(inner), bad_rank_(rank), element_(element) {}
  Work begin(const Collective& collective) override;

 private:
  int bad_rank_;
  std::int64_t element_;
};

// Calls back before each collective with its number, counted together with those of the communicators that are split
// off, but for those of a lifeline; what the callback throws, this rank throws.
class WatchedCommunicator : public CommunicatorDecorator {
 public:
  using Callback = std::function<void(std::int64_t number, const Collective& collective)>;
  WatchedCommunicator(Communicator& inner, Callback callback)
      : CommunicatorDecorator(inner), callback_(std::move(callback)) {}
  Work begin(const Collective& collective) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Communicator> split_apart(int color, int key) override;

 private:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, const WatchedCommunicator& parent)
      : CommunicatorDecorator(*inner), own_(std::move(inner)), callback_(parent.callback_), number_(parent.number_) {}

  std::unique_ptr<Communicator> own_ = {};  // the inner one, where this one was split off
  Callback callback_;
  std::shared_ptr<std::int64_t> number_ = std::make_shared<std::int64_t>(0);
};

// Sleeps before each collective, for a time in [0, longest] that depends on seed, rank and number.
class DelayedCommunicator : public WatchedCommunicator {
 public:
  DelayedCommunicator(Communicator& inner, std::uint64_t seed, std::chrono::microseconds longest);
};

}  // namespace keel
