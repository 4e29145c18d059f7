#pragma once
// A buffer: numbers that belong to a model and are not trained, such as running means. What changes them in a step is
// the same on every rank, and a step that is not taken changes nothing.
//
// A forward pass never writes a buffer. It says what it has observed, and the engine's step makes the buffer's next
// value of all observations of that step:
//
//   x = sum over ranks and their micro-batches of count * observed, divided by the sum of the counts
//   value <- value + momentum * (x - value)
//
// Where nothing was observed the value stays. A rank adds its micro-batches in their order, and the sums of ranks are
// added in the order of ranks, in fp32; so every rank and every stage has the same bits. A step has one momentum,
// however many micro-batches it has. With one micro-batch on one rank that is PyTorch's rule.

#include <cstdint>
#include <memory>
#include <string>

#include "keel/nn/module.h"

namespace keel {

class Buffer {
 public:
  // What all handles of one buffer share.
  struct State {
    Dims shape;
    double initial = 0;
    double momentum = 0;     // 0: nothing changes it
    std::string name;        // its path in the model; set by attach_buffers()
    Tensor value;            // f32 (shape), on the model's device; set by attach_buffers()
    Tensor observed;         // f32 (shape): the sum of this step on this rank; undefined: none yet
    std::int64_t count = 0;  // that it is a sum over
    bool closed = false;     // the engine wants no further observations in this step
  };

  Buffer() = default;  // absent
  // A table or a scale that nothing changes.
  static Buffer constant(const Dims& shape, double value = 0);
  // `momentum`, in (0, 1], is the share of what is new; an Error otherwise.
  static Buffer moving_average(const Dims& shape, double momentum, double initial = 0);
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;

  bool defined() const { return state_ != nullptr; }
  const Dims& shape() const { return state_->shape; }
  const std::string& name() const { return state_->name; }
  // f32 (shape). The same on every rank; it does not change between two steps. An Error before materialize().
  const Tensor& value() const;

  // Notes `x` (shape; any floating dtype), a mean over `count` values of this rank, for the step that `pass` belongs
  // to. Does nothing where the pass does not observe, inside a backward pass (recomputation runs forward again there),
  // and in evaluations of a closure after a step's first. An Error where the buffer is constant or absent, x has
  // another shape, or nothing was counted.
  //
  // A module that is called twice in a pass counts twice. What was observed is forgotten with the gradients.
  void observe(const Forward& pass, const Tensor& x, std::int64_t count) const;

  const std::shared_ptr<State>& state() const { return state_; }

 private:
  explicit Buffer(State state) : state_(std::make_shared<State>(std::move(state))) {}
  std::shared_ptr<State> state_;
};

// Gives every buffer of the model its name, memory and initial numbers; returns each once, in visiting order.
// materialize() and the engine call it. A buffer and a parameter of one name are an Error.
std::vector<std::shared_ptr<Buffer::State>> attach_buffers(Module& model, const Context& context);

// Numbers of all buffers, and how many buffers there are; `moving` of both are of those that training changes.
struct BufferCount {
  std::int64_t numbers = 0, buffers = 0;
  std::int64_t moving_numbers = 0, moving_buffers = 0;
};
BufferCount count_buffers(Module& model);

}  // namespace keel
