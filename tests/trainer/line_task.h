#pragma once
// The smallest model that a run trains: y = 3 x + 1, of a weight and a bias, a number each. A run takes milliseconds.

#include <functional>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "tests/trainer/small_task.h"

namespace keel::testing {

class LineTask : public Task {
 public:
  explicit LineTask(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    const auto points = [](std::int64_t i) {
      const auto x = static_cast<float>(i) / 4;
      return Example().set("x", Numbers{{1}, {x}}).set("y", Numbers{{1}, {3 * x + 1}});
    };
    Data data = make_data(site_, made_dataset(12, "line", points), 0, stack());
    data.validation = {{"", make_source(site_.host, made_dataset(4, "line", points), sequential(4, 4), stack())}};
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable error = mse_loss(net_(input(batch, "x", pass), pass), input(batch, "y", pass));
    Loss loss = factor_of_loss ? scale(error, factor_of_loss(pass.training)) : error;
    if (change_loss && pass.training) change_loss(loss, error);
    return loss;
  }
  // Asked in each pass, where there is one.
  static inline thread_local std::function<double(bool training)> factor_of_loss;
  static inline thread_local std::function<void(Loss& loss, const Variable& error)> change_loss;

 private:
  TaskSite site_;
  Linear net_{1, 1};
};

// Without checkpoints but the last, and without evaluations but the last.
inline Config smallest_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<LineTask>("line");
  return task_run(keys, R"(
steps: 6
batch: {global: 4, micro: 2}
optimizer: {type: SGD, lr: 0.1}
scheduler: {type: constant}
clip: 0
strategy: ddp-fp32
eval: {every: 0}
checkpoint: {every: 0}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

}  // namespace keel::testing
