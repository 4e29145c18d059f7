#include "keel/dist/comm/staged_communicator.h"

#include <deque>
#include <utility>

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

bool is_of_device(const Collective& collective) {
  const Tensor& any = collective.output.defined() ? collective.output : collective.input;
  return any.defined() && any.device().type != DeviceType::cpu;
}

// A collective whose input is on its way to the processor, under way among processors, or on its way back.
class Staged {
 public:
  explicit Staged(const Collective& collective) : device_(collective) {
    if (collective.input.defined()) input_ = HostCopy(collective.input);
  }

  bool has_input() const { return !device_.input.defined() || input_.has_arrived(); }

  // Blocks until the input is there.
  void begin(Communicator& ranks) {
    Collective host = device_;
    if (device_.input.defined()) host.input = input_.get();
    if (device_.output.defined()) {
      const bool in_place = device_.input.defined() && device_.input.raw() == device_.output.raw() &&
                            device_.input.numel() == device_.output.numel();
      output_ = in_place ? host.input
                         : empty(device_.output.context().host(), device_.output.shape(), device_.output.dtype(),
                                 Purpose::workspace);
      host.output = output_;
    }
    work_ = ranks.begin(host);
    begun_ = true;
  }

  bool is_message() const { return device_.kind == CollectiveKind::send || device_.kind == CollectiveKind::receive; }
  bool has_begun() const { return begun_; }
  std::optional<std::int64_t> sent() const { return finished_ ? sent_ : work_.sent(); }
  bool has_travelled() const { return begun_ && work_.has_finished(); }

  void finish() {
    if (std::exchange(finished_, true)) return;
    work_.wait();
    sent_ = work_.sent();
    work_ = {};
    if (output_.defined()) kernels::copy_across(device_.output, output_);
    device_ = {};
    output_ = {};
  }

 private:
  Collective device_;
  HostCopy input_;
  Tensor output_;  // of the processor
  Work work_;
  std::optional<std::int64_t> sent_;
  bool begun_ = false, finished_ = false;
};

// The collectives whose inputs have not arrived. Ranks must begin them in one order.
struct StagedQueue {
  std::unique_ptr<Communicator> ranks;
  std::deque<std::shared_ptr<Staged>> waiting;

  void begin_what_has_arrived() {
    while (!waiting.empty() && waiting.front()->has_input()) begin_first();
  }
  // With a message go those that were asked for right behind it: ranks may send to each other before they receive.
  void begin_all_until(const Staged* last) {
    while (!waiting.empty() && (last == nullptr || !last->has_begun())) begin_first();
    while (!waiting.empty() && last->is_message() && waiting.front()->is_message()) begin_first();
  }

 private:
  void begin_first() {
    const std::shared_ptr<Staged> first = std::move(waiting.front());
    waiting.pop_front();
    first->begin(*ranks);
  }
};

class StagedOperation final : public Operation {
 public:
  StagedOperation(std::shared_ptr<StagedQueue> queue, std::shared_ptr<Staged> staged)
      : queue_(std::move(queue)), staged_(std::move(staged)) {}
  bool advance() override {
    queue_->begin_what_has_arrived();
    if (!staged_->has_travelled()) return false;
    staged_->finish();
    return true;
  }
  void wait() override {
    queue_->begin_all_until(staged_.get());
    staged_->finish();
  }
  std::optional<std::int64_t> sent() const override { return staged_->sent(); }

 private:
  std::shared_ptr<StagedQueue> queue_;
  std::shared_ptr<Staged> staged_;
};

class StagedCommunicator final : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> ranks)
      : queue_(std::make_shared<StagedQueue>(StagedQueue{std::move(ranks), {}})) {}
  int rank() const override { return ranks().rank(); }
  int size() const override { return ranks().size(); }
  const std::vector<int>& nodes() const override { return ranks().nodes(); }
  std::chrono::milliseconds timeout() const override { return ranks().timeout(); }
  Work begin(const Collective& collective) override {
    if (!is_of_device(collective)) {
      queue_->begin_all_until(nullptr);
      return ranks().begin(collective);
    }
    auto staged = std::make_shared<Staged>(collective);
    queue_->waiting.push_back(staged);
    queue_->begin_what_has_arrived();
    return Work(std::make_shared<StagedOperation>(queue_, std::move(staged)));
  }
  void poll() override {
    queue_->begin_what_has_arrived();
    ranks().poll();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    queue_->begin_all_until(nullptr);
    return make_staged_communicator(ranks().split(color, key));
  }
  Traffic traffic() const override { return ranks().traffic(); }
  void fail(const std::string& reason) noexcept override { ranks().fail(reason); }
  void set_activity(const std::string& activity) override { ranks().set_activity(activity); }

 private:
  Communicator& ranks() const { return *queue_->ranks; }

  std::shared_ptr<StagedQueue> queue_;  // shared with operations
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> ranks) {
  return std::make_unique<StagedCommunicator>(std::move(ranks));
}

}  // namespace keel
