#pragma once
// record(): the one way in which an operation joins the graph.
//
// An operation computes its outputs with kernels, then names its inputs, what it saves, and a
// function from output gradients to input gradients. The backward stands beside the forward.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/autograd/variable.h"

namespace keel {

// The tensors that a node keeps for backward. Reading one checks that nobody changed it in place since.
class Saved {
 public:
  Saved() = default;
  explicit Saved(std::span<const Tensor> tensors);
  // The i-th saved tensor; undefined where an undefined one was saved.
  const Tensor& operator[](std::size_t i) const;

 private:
  friend class Node;
  struct Entry {
    Tensor tensor;
    std::uint64_t version;
  };
  std::vector<Entry> entries_;
  std::string_view name_;
};

// Where the gradient of an input is wanted: write it into `into` (or add it, when `add` is set).
struct Destination {
  Tensor into;
  bool add;
};

// Which input gradients are wanted, and where.
class Need {
 public:
  explicit Need(const Node& node) : node_(node) {}
  bool operator[](std::size_t input) const;
  // A view of the buffer in which this input's gradient accumulates, or nothing. A function that
  // writes there returns `into` itself as the gradient. Its dtype may be wider than the input's.
  std::optional<Destination> destination(std::size_t input) const;
  // The leaf of an input whose gradient is kept as rows. The function adds to that leaf itself and returns no gradient
  // for the input. Null for all other inputs.
  Leaf* sparse_leaf(std::size_t input) const;

 private:
  const Node& node_;
};

// One gradient for each input; undefined where none is needed. A gradient may have the shape to which
// its input was broadcast: the engine sums it back.
using Gradients = std::vector<Tensor>;
// grad_outputs[i] is undefined when nothing depends on output i.
using BackwardFunction =
    std::function<Gradients(const Saved& saved, std::span<const Tensor> grad_outputs, const Need& need)>;

// One recorded operation.
class Node {
 public:
  struct Edge {
    std::shared_ptr<Node> node;  // exactly one of node and leaf is set, or none (no gradient needed)
    int output_index = 0;
    std::shared_ptr<Leaf> leaf;
    Dims shape;             // of the input
    bool constant = false;  // in the pass that runs the node
    bool needed() const { return !constant && (node != nullptr || leaf != nullptr); }
  };
  struct Output {
    Dims shape;
    DType dtype;
  };

  Node(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs,
       std::span<const Tensor> saved, BackwardFunction function);
  ~Node();  // releases a chain of any length without recursion
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::string_view name() const { return name_; }
  // One more than the largest of its inputs: an order that every rank agrees on.
  std::uint64_t sequence() const { return sequence_; }
  std::span<const Edge> inputs() const { return inputs_; }
  const Edge& input(std::size_t i) const;
  void set_constant(std::size_t i, bool constant) { inputs_[i].constant = constant; }
  std::span<const Output> outputs() const { return outputs_; }
  bool released() const { return released_; }
  // Whether the function takes the gradient of an output of one element in a wider dtype than the output's.
  bool takes_wide() const { return takes_wide_; }
  void set_takes_wide() { takes_wide_ = true; }

  // Runs the function once and lets go of everything saved. Throws on a second call.
  Gradients run(std::span<const Tensor> grad_outputs);
  void release_inputs();

 private:
  std::string_view name_;
  std::uint64_t sequence_ = 0;
  std::vector<Edge> inputs_;
  std::vector<Output> outputs_;
  Saved saved_;
  BackwardFunction function_;
  bool released_ = false, takes_wide_ = false;
};

// While alive, sees the name and the outputs of every operation on this thread, recorded or not. Scopes nest;
// the innermost one is called.
class OperationTrace {
 public:
  using Callback = std::function<void(std::string_view name, std::span<const Tensor> outputs)>;
  explicit OperationTrace(Callback callback);
  ~OperationTrace();
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;

 private:
  friend void trace_operation(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs);
  Callback callback_;
  OperationTrace* outer_;
};
// What every form of record() does first: it tells the innermost OperationTrace of this thread. Where an operation had
// no elements to compute on, or computed none, so that its kernel need not have read all inputs, their touch hooks run
// now: ranks that gather weights when somebody reads them meet, whoever of them has rows.
void trace_operation(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs);

// Whether an operation on these inputs must be recorded now. Also notes the leaves among them for an
// enclosing checkpoint().
bool must_record(std::span<const Variable> inputs);

// Records an operation with one output. `name` must outlive the graph (a string literal).
template <class F>
Variable record(std::string_view name, Tensor output, std::initializer_list<Variable> inputs,
                std::initializer_list<Tensor> saved, F&& function) {
  const std::span<const Variable> in(inputs.begin(), inputs.size());
  trace_operation(name, std::span(&output, 1), in);
  if (!must_record(in)) return Variable(std::move(output));
  auto node = std::make_shared<Node>(name, std::span(&output, 1), in, std::span(saved.begin(), saved.size()),
                                     std::forward<F>(function));
  return Variable::from_node(std::move(output), std::move(node), 0);
}

// Says of a recorded operation with one output: where that has one element in 16 bits, the function takes its gradient
// in a wider dtype, too, and gives gradients of one element in that dtype then. So the seed of a loss in 16 bits is not
// rounded on its way to the tensor that the loss was computed from. Gradients of more elements may be wide: the engine
// rounds them.
inline Variable takes_wide(Variable result) {
  if (result.node()) result.node()->set_takes_wide();
  return result;
}

// The general form: any number of outputs and inputs.
std::vector<Variable> record(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs,
                             std::span<const Tensor> saved, BackwardFunction function);

// While alive, notes every leaf that requires a gradient and is an input of an operation on this thread.
class LeafCollector {
 public:
  LeafCollector();
  ~LeafCollector();
  LeafCollector(const LeafCollector&) = delete;
  LeafCollector& operator=(const LeafCollector&) = delete;
  const std::vector<Variable>& leaves() const { return leaves_; }

 private:
  friend bool must_record(std::span<const Variable> inputs);
  LeafCollector* outer_;
  std::vector<Variable> leaves_;
};

}  // namespace keel
