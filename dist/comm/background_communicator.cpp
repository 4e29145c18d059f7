#include "keel/dist/comm/background_communicator.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "keel/dist/comm/lifeline.h"

namespace keel {
namespace {

// Between two looks of the thread at what is under way.
constexpr std::chrono::microseconds kPause(50);

// What the communicators of one family share: the right to call the inner ones, and the thread.
class Background {
 public:
  Background() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  // A touch hook of a tensor may call from inside a call.
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }
  std::unique_lock<std::recursive_mutex> try_lock() { return {mutex_, std::try_to_lock}; }

  // Under the lock.
  void add(Work work) {
    under_way_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return !under_way_.empty(); })) return;
        std::erase_if(under_way_, [](const Work& work) {
          try {
            return work.has_finished();
          } catch (...) { return true; }  // the operation keeps it for who waits
        });
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Work> under_way_;
  std::jthread thread_;  // last: it uses the others
};

class BackgroundOperation final : public Operation {
 public:
  BackgroundOperation(std::shared_ptr<Background> background, Work work)
      : background_(std::move(background)), work_(std::move(work)) {}
  bool advance() override {
    const auto lock = background_->lock();
    return work_.has_finished();
  }
  // A wait makes progress for all.
  void wait() override {
    const auto lock = background_->lock();
    work_.wait();
  }
  std::optional<std::int64_t> sent() const override {
    const auto lock = background_->lock();
    return work_.sent();
  }

 private:
  std::shared_ptr<Background> background_;
  Work work_;
};

class BackgroundCommunicator final : public Communicator {
 public:
  BackgroundCommunicator(std::unique_ptr<Communicator> ranks, std::shared_ptr<Background> background)
      : background_(std::move(background)), ranks_(std::move(ranks)) {}
  ~BackgroundCommunicator() override {
    const auto lock = background_->lock();
    ranks_.reset();
  }
  BackgroundCommunicator(const BackgroundCommunicator&) = delete;
  BackgroundCommunicator& operator=(const BackgroundCommunicator&) = delete;

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  const std::vector<int>& nodes() const override { return ranks_->nodes(); }
  std::chrono::milliseconds timeout() const override { return ranks_->timeout(); }
  Work begin(const Collective& collective) override {
    const auto lock = background_->lock();
    const Work work = ranks_->begin(collective);
    background_->add(work);
    return Work(std::make_shared<BackgroundOperation>(background_, work));
  }
  void poll() override {
    if (const auto lock = background_->try_lock()) ranks_->poll();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    const auto lock = background_->lock();
    return std::make_unique<BackgroundCommunicator>(ranks_->split(color, key), background_);
  }
  std::unique_ptr<Communicator> split_apart(int color, int key) override {
    const auto lock = background_->lock();
    return std::make_unique<BackgroundCommunicator>(ranks_->split_apart(color, key), background_);
  }
  std::unique_ptr<Lifeline> lifeline(const std::vector<int>& groups) override;
  std::unique_ptr<Communicator> regroup(const Regroup& wish) override {
    const auto lock = background_->lock();
    return std::make_unique<BackgroundCommunicator>(ranks_->regroup(wish), background_);
  }
  Tensor allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose) override {
    const auto lock = background_->lock();
    return ranks_->allocate(context, count, dtype, purpose);
  }
  Traffic traffic() const override {
    const auto lock = background_->lock();
    return ranks_->traffic();
  }
  void fail(const std::string& reason) noexcept override {
    const auto lock = background_->lock();
    ranks_->fail(reason);
  }
  void set_activity(const std::string& activity) override {
    const auto lock = background_->lock();
    ranks_->set_activity(activity);
  }
  bool allows_threads() const override { return true; }
  std::shared_ptr<Alarm> alarm() override { return ranks_->alarm(); }

 private:
  std::shared_ptr<Background> background_;
  std::unique_ptr<Communicator> ranks_;
};

// The thread waits while its rank agrees with others.
class BackgroundLifeline final : public Lifeline {
 public:
  BackgroundLifeline(std::unique_ptr<Lifeline> lifeline, std::shared_ptr<Background> background)
      : background_(std::move(background)), lifeline_(std::move(lifeline)) {}
  ~BackgroundLifeline() override {
    const auto lock = background_->lock();
    lifeline_.reset();
  }
  BackgroundLifeline(const BackgroundLifeline&) = delete;
  BackgroundLifeline& operator=(const BackgroundLifeline&) = delete;

  Survivors agree(std::int64_t word) override {
    const auto lock = background_->lock();
    return lifeline_->agree(word);
  }
  std::unique_ptr<Communicator> ranks() override {
    const auto lock = background_->lock();
    return std::make_unique<BackgroundCommunicator>(lifeline_->ranks(), background_);
  }

 private:
  std::shared_ptr<Background> background_;
  std::unique_ptr<Lifeline> lifeline_;
};

std::unique_ptr<Lifeline> BackgroundCommunicator::lifeline(const std::vector<int>& groups) {
  const auto lock = background_->lock();
  return std::make_unique<BackgroundLifeline>(ranks_->lifeline(groups), background_);
}

}  // namespace

std::unique_ptr<Communicator> make_background_communicator(std::unique_ptr<Communicator> ranks) {
  if (!ranks->allows_threads())
    throw Error("a thread for communication needs an MPI that was started with MPI_THREAD_SERIALIZED or more",
                ErrorKind::unsupported);
  return std::make_unique<BackgroundCommunicator>(std::move(ranks), std::make_shared<Background>());
}

}  // namespace keel
