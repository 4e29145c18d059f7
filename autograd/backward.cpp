#include "keel/autograd/backward.h"

#include <algorithm>
#include <unordered_map>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/reduce.h"

namespace keel {
namespace {

// What one pass knows of a node: the gradients of its outputs, as far as they have arrived.
struct Task {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grad_outputs;
};

// Adds a contribution to a pending gradient. Writes in place only into memory that nobody else sees.
void add_pending(Tensor& pending, Tensor contribution) {
  if (!pending.defined()) {
    pending = std::move(contribution);
  } else if (pending.storage().use_count() == 1 && pending.is_contiguous()) {
    kernels::accumulate(pending, contribution);
  } else if (contribution.storage().use_count() == 1 && contribution.is_contiguous() &&
             contribution.dtype() == pending.dtype()) {
    kernels::accumulate(contribution, pending);
    pending = std::move(contribution);
  } else {
    Tensor sum = kernels::clone(pending);
    kernels::accumulate(sum, contribution);
    pending = std::move(sum);
  }
}

class Engine {
 public:
  Engine(std::span<const Variable> outputs, std::span<const Tensor> gradients, bool nested, BackwardPass& pass)
      : nested_(nested), pass_(pass) {
    for (const Variable& output : outputs) collect(output);
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.node->sequence() > b.node->sequence(); });
    for (std::size_t i = 0; i < tasks_.size(); ++i) task_of_[tasks_[i].node.get()] = i;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      deliver(outputs[i].node(), outputs[i].output_index(), outputs[i].leaf(), gradients[i]);
  }

  void run() {
    for (Task& task : tasks_) {
      const bool reached = std::any_of(task.grad_outputs.begin(), task.grad_outputs.end(),
                                       [](const Tensor& grad) { return grad.defined(); });
      Gradients gradients(task.node->inputs().size());
      if (reached) gradients = task.node->run(task.grad_outputs);
      task.grad_outputs.clear();
      const auto edges = task.node->inputs();
      for (std::size_t i = 0; i < edges.size(); ++i) {
        if (!edges[i].needed()) continue;
        Tensor gradient = std::move(gradients[i]);
        if (gradient.defined() && gradient.shape() != edges[i].shape)
          gradient = kernels::sum_to(gradient, edges[i].shape);
        deliver(edges[i].node, edges[i].output_index, edges[i].leaf, std::move(gradient));
      }
      task.node->release_inputs();
      task.node.reset();
    }
  }

 private:
  // Finds the nodes below `output` and counts how many contributions each leaf will get.
  void collect(const Variable& output) {
    if (output.leaf()) ++expected_[output.leaf().get()];
    if (!output.node()) return;
    std::vector<std::shared_ptr<Node>> stack;
    const auto discover = [&](const std::shared_ptr<Node>& node) {
      if (!task_of_.try_emplace(node.get(), tasks_.size()).second) return;
      tasks_.push_back({node, std::vector<Tensor>(node->outputs().size())});
      stack.push_back(node);
    };
    discover(output.node());
    while (!stack.empty()) {
      const std::shared_ptr<Node> node = std::move(stack.back());
      stack.pop_back();
      for (const Node::Edge& edge : node->inputs()) {
        if (edge.node) discover(edge.node);
        if (edge.leaf) ++expected_[edge.leaf.get()];
      }
    }
  }

  void deliver(const std::shared_ptr<Node>& node, int output_index, const std::shared_ptr<Leaf>& leaf,
               Tensor gradient) {
    if (node) {
      if (gradient.defined())
        add_pending(tasks_[task_of_.at(node.get())].grad_outputs[static_cast<std::size_t>(output_index)],
                    std::move(gradient));
    } else if (leaf) {
      if (gradient.defined()) leaf->accumulate(std::move(gradient));
      if (--expected_[leaf.get()] == 0 && !nested_ && leaf->has_grad) leaf->tell_ready(pass_);
    }
  }

  bool nested_;
  BackwardPass& pass_;
  std::vector<Task> tasks_;
  std::unordered_map<const Node*, std::size_t> task_of_;
  std::unordered_map<const Leaf*, std::int64_t> expected_;
};

}  // namespace

void run_backward(std::span<const Variable> outputs, std::span<const Tensor> gradients, bool nested) {
  KEEL_CHECK(outputs.size() == gradients.size(), "backward got ", outputs.size(), " outputs and ", gradients.size(),
             " gradients");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    KEEL_CHECK(outputs[i].requires_grad(), "backward from output ", i,
               ": it depends on nothing that requires a gradient");
    KEEL_CHECK(gradients[i].shape() == outputs[i].shape(), "backward from output ", i, " of shape ", outputs[i].shape(),
               " got a gradient of shape ", gradients[i].shape());
  }
  BackwardPass pass;
  Engine(outputs, gradients, nested, pass).run();
  for (std::size_t i = 0; i < pass.callbacks_.size(); ++i) pass.callbacks_[i]();
}

void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  KEEL_CHECK(grad_mode() == GradMode::record,
             "backward was called inside NoGrad or inside another backward; "
             "a derivative of a derivative is not offered");
  run_backward(outputs, gradients, false);
}

void backward(const Variable& loss, double seed) {
  KEEL_CHECK(loss.defined() && loss.value().numel() == 1, "backward needs a loss of one element, got ", loss.value());
  const Tensor gradient = kernels::full(loss.context(), loss.shape(), seed, loss.dtype());
  backward(std::span(&loss, 1), std::span(&gradient, 1));
}

}  // namespace keel
