#pragma once
// The engine: owns a model's flat memory and optimizer state, and turns losses into optimizer steps.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/kernels/step_state.h"
#include "keel/nn/flat_buffer.h"
#include "keel/nn/state.h"
#include "keel/optim/optimizer.h"

namespace keel {

struct EngineOptions {
  PrecisionPolicy policy = {};     // master weights are there if the optimizer needs them
  std::uint64_t seed = 1;          // of the initial weights
  std::int64_t micro_batches = 1;  // calls of backward() between two steps; more than one asks for wide accumulators
  double clip = 0;                 // longest gradient, by its 2-norm; 0: not clipped
  GroupRule groups = decay_matrices_only;
};

struct StepResult {
  bool taken = false;            // false: a gradient was not finite, and nothing has changed
  std::int64_t steps_taken = 0;  // by then
  double lr = 0;
  double grad_norm = 0;        // 2-norm of the mean gradient before clipping, in fp64
  std::string first_bad = {};  // the first parameter whose gradient was not finite
};

class Engine;

// A step that the device may still work on. The engine must outlive it.
class PendingStep {
 public:
  PendingStep() = default;
  StepResult get() const;  // waits

 private:
  friend class Engine;
  PendingStep(const Engine& engine, const Tensor& state) : engine_(&engine), state_(state) {}
  const Engine* engine_ = nullptr;
  HostCopy state_;
};

class Engine {
 public:
  // Gives the model its memory and initial numbers. The model must outlive the engine.
  Engine(Module& model, const Context& context, std::unique_ptr<const Optimizer> optimizer,
         const EngineOptions& options = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Adds the gradient of `loss`, a mean over `tokens` targets (or samples), to the gradient of the step. Until
  // step() gradients are sums over tokens, so that micro-batches of different sizes weigh as they should.
  void backward(const Variable& loss, std::int64_t tokens = 1);
  // Counts the tokens of a backward that happens outside: one that was recorded as a graph and is repeated.
  void count_tokens(std::int64_t tokens);
  // Of the losses since the last step.
  std::int64_t tokens() const { return tokens_; }
  // Divides by the tokens, clips, updates, and forgets the gradients; skipped as a whole where one is not finite.
  // Nothing waits for the device: that is for who wants the result.
  PendingStep step(double lr);
  // The same with rates[i] (f64) as the learning rate after i taken steps, so that skipped ones do not count.
  PendingStep step(const Tensor& rates);
  // Forgets the gradients that have been added since the last step.
  void zero_grad();

  // Steps taken; skipped ones do not count. Waits for the device.
  std::int64_t steps_taken() const;
  const Context& context() const { return context_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  std::span<const FlatBuffer> buffers() const { return buffers_; }

  // Views: the weights by parameter name (the masters where there are any), and the optimizer's state as
  // "<state>.<parameter>".
  NamedTensors weights() const;
  NamedTensors optimizer_state() const;
  // Every name and shape must be there: else an Error that lists the differences, and nothing is changed.
  void load_weights(const NamedTensors& weights);
  void load_optimizer_state(const NamedTensors& state, std::int64_t steps_taken);

 private:
  // One kind of optimizer state of one buffer.
  struct State {
    std::string name;
    std::size_t buffer;
    Tensor values;  // (padded), f32 (f64 for f64 parameters)
  };
  void make_state();
  void make_ranges(const GroupRule& groups);
  friend class PendingStep;
  PendingStep step(StepArgs args);
  std::string parameter_at(std::int64_t element) const;

  Context context_;
  std::unique_ptr<const Optimizer> optimizer_;
  double clip_;
  std::vector<FlatBuffer> buffers_;
  std::vector<State> states_;
  std::vector<ParameterRange> ranges_;
  Tensor step_state_;
  std::int64_t tokens_ = 0;
};

}  // namespace keel
