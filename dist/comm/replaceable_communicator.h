#pragma once
// A communicator that stays while the one behind it is replaced.

#include <memory>
#include <utility>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/lifeline.h"

namespace keel {

// Hands everything on to the one that was given last.
class ReplaceableCommunicator : public Communicator {
 public:
  explicit ReplaceableCommunicator(std::unique_ptr<Communicator> now) : now_(std::move(now)) {}
  // The one before goes; what was under way in it fails.
  void replace(std::unique_ptr<Communicator> now) {
    before_.add(now_->traffic());
    now_ = std::move(now);
  }

  int rank() const override { return now_->rank(); }
  int size() const override { return now_->size(); }
  const std::vector<int>& nodes() const override { return now_->nodes(); }
  std::chrono::milliseconds timeout() const override { return now_->timeout(); }
  Work begin(const Collective& collective) override { return now_->begin(collective); }
  void poll() override { now_->poll(); }
  std::unique_ptr<Communicator> split(int color, int key) override { return now_->split(color, key); }
  std::unique_ptr<Communicator> split_apart(int color, int key) override { return now_->split_apart(color, key); }
  std::unique_ptr<Communicator> regroup(const Regroup& wish) override { return now_->regroup(wish); }
  std::unique_ptr<Lifeline> lifeline(const std::vector<int>& groups) override { return now_->lifeline(groups); }
  Tensor allocate(const Context& context, std::int64_t count, DType dtype, Purpose purpose) override {
    return now_->allocate(context, count, dtype, purpose);
  }
  Traffic traffic() const override {
    Traffic all = before_;
    all.add(now_->traffic());
    return all;
  }
  std::span<const std::string> ways() const override { return now_->ways(); }
  void use_way(std::size_t way) override { now_->use_way(way); }
  void fail(const std::string& reason) noexcept override { now_->fail(reason); }
  void set_activity(const std::string& activity) override { now_->set_activity(activity); }
  bool allows_threads() const override { return now_->allows_threads(); }
  void check_thread() const override { now_->check_thread(); }
  std::shared_ptr<Alarm> alarm() override { return now_->alarm(); }

 private:
  std::unique_ptr<Communicator> now_;
  Traffic before_ = {};  // of those before
};

}  // namespace keel
