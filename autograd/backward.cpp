#include "keel/autograd/backward.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/reduce.h"

namespace keel {
namespace {

bool is_wider(DType a, DType b) { return size_of(a) > size_of(b); }

// What one pass knows of a node: the gradients of its outputs, as far as they have arrived.
struct Task {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grad_outputs;
};

// Adds a contribution to a pending gradient, in the wider dtype of both. Writes in place only into memory that nobody
// else sees.
void add_pending(Tensor& pending, Tensor contribution) {
  if (pending.defined() && is_wider(contribution.dtype(), pending.dtype())) std::swap(pending, contribution);
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

thread_local BackwardPass* running = nullptr;

// Makes a pass the current one for as long as it runs.
class Running {
 public:
  explicit Running(BackwardPass& pass) : before_(running) { running = &pass; }
  ~Running() { running = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  BackwardPass* before_;
};

class Engine {
 public:
  Engine(std::span<const Variable> outputs, std::span<const Tensor> gradients, bool nested, BackwardPass& pass)
      : nested_(nested), pass_(pass) {
    for (const Variable& output : outputs) collect(output);
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.node->sequence() > b.node->sequence(); });
    if (meets_constants_) leave_out_constants();
    count(outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Variable& output = outputs[i];
      const bool constant =
          output.leaf() ? !pass_.gives_gradient_to(*output.leaf()) : !task_of_.contains(output.node().get());
      KEEL_CHECK(!constant || nested_, "backward from output ", i,
                 ": it depends on nothing but parameters of an engine "
                 "that is not running backward; they get a gradient from that engine's own backward() alone");
      check_seed(output, i, gradients[i]);
      if (!constant) deliver(output.node(), output.output_index(), output.leaf(), gradients[i]);
    }
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
        if (edges[i].constant && edges[i].leaf) pass_by(*edges[i].leaf);
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
  void check_seed(const Variable& output, std::size_t i, const Tensor& seed) const {
    if (nested_ || !output.node() || output.node()->takes_wide()) return;
    KEEL_CHECK(!is_wider(seed.dtype(), output.dtype()), "backward from output ", i, " in ", output.dtype(),
               ": its gradient in ", seed.dtype(), " would be rounded, as the backward of ", output.node()->name(),
               " does not take it; compute the loss in ", seed.dtype(), ": cast before that operation");
  }

  // Finds the nodes below `output`.
  void collect(const Variable& output) {
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
        // An edge that is marked is what another pass has left that ended in an Error.
        if (edge.constant || (edge.leaf && !pass_.gives_gradient_to(*edge.leaf))) meets_constants_ = true;
      }
    }
  }

  // Keeps the nodes that some leaf below them makes depend on this pass, and marks what is a constant for them.
  void leave_out_constants() {
    std::unordered_set<const Node*> kept;
    const auto depends = [&](const Node::Edge& edge) {
      return edge.leaf ? pass_.gives_gradient_to(*edge.leaf) : kept.contains(edge.node.get());
    };
    for (auto task = tasks_.rbegin(); task != tasks_.rend(); ++task) {  // inputs come before what is made of them
      const auto edges = task->node->inputs();
      const bool consumed = edges.empty();  // by an earlier pass: to run it is an Error
      if (consumed || std::any_of(edges.begin(), edges.end(), depends)) kept.insert(task->node.get());
    }
    std::erase_if(tasks_, [&](const Task& task) { return !kept.contains(task.node.get()); });
    for (const Task& task : tasks_) {
      const auto edges = task.node->inputs();
      for (std::size_t i = 0; i < edges.size(); ++i) task.node->set_constant(i, !depends(edges[i]));
    }
  }

  // Finds the place of each node, and counts how many contributions each leaf will get.
  void count(std::span<const Variable> outputs) {
    task_of_.clear();
    for (const Variable& output : outputs)
      if (output.leaf()) ++expected_[output.leaf().get()];
    std::size_t place = 0;
    for (const Task& task : tasks_) {
      task_of_[task.node.get()] = place++;
      for (const Node::Edge& edge : task.node->inputs())
        if (edge.leaf) ++expected_[edge.leaf.get()];
    }
  }

  void pass_by(const Leaf& leaf) {
    if (--expected_[&leaf] == 0 && !nested_) leaf.tell_passed(pass_);
  }

  void deliver(const std::shared_ptr<Node>& node, int output_index, const std::shared_ptr<Leaf>& leaf,
               Tensor gradient) {
    if (node) {
      if (!gradient.defined()) return;
      const auto output = static_cast<std::size_t>(output_index);
      const DType dtype = node->outputs()[output].dtype;
      const bool stays_wide = gradient.numel() == 1 && node->takes_wide();
      if (is_wider(gradient.dtype(), dtype) && !stays_wide) gradient = kernels::cast(gradient, dtype);
      add_pending(tasks_[task_of_.at(node.get())].grad_outputs[output], std::move(gradient));
    } else if (leaf) {
      if (gradient.defined()) leaf->accumulate(std::move(gradient));
      if (--expected_[leaf.get()] == 0 && !nested_ && leaf->has_grad) leaf->tell_ready(pass_);
    }
  }

  bool nested_;
  bool meets_constants_ = false;
  BackwardPass& pass_;
  std::vector<Task> tasks_;
  std::unordered_map<const Node*, std::size_t> task_of_;
  std::unordered_map<const Leaf*, std::int64_t> expected_;
};

void run(std::span<const Variable> outputs, std::span<const Tensor> gradients, bool nested, BackwardPass& pass) {
  KEEL_CHECK(outputs.size() == gradients.size(), "backward got ", outputs.size(), " outputs and ", gradients.size(),
             " gradients");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    KEEL_CHECK(outputs[i].requires_grad(), "backward from output ", i,
               ": it depends on nothing that requires a gradient");
    KEEL_CHECK(gradients[i].shape() == outputs[i].shape(), "backward from output ", i, " of shape ", outputs[i].shape(),
               " got a gradient of shape ", gradients[i].shape());
  }
  Engine(outputs, gradients, nested, pass).run();
}

std::uint64_t next_pass() {
  static std::atomic<std::uint64_t> passes = 0;
  return ++passes;
}

}  // namespace

BackwardPass::BackwardPass(const void* owner) : owner_(owner), id_(next_pass()) {}

Tensor make_seed(const Variable& loss, double seed, bool changes) {
  const bool exact = visit_floating(loss.dtype(), [seed](auto tag) {
    using T = typename decltype(tag)::type;
    return static_cast<double>(static_cast<float>(T(static_cast<float>(seed)))) == seed;
  });
  const bool taken = loss.node() && loss.node()->takes_wide();
  const bool wide = size_of(loss.dtype()) == 2 && (taken || changes || !exact);
  return kernels::full(loss.context(), loss.shape(), seed, wide ? DType::f32 : loss.dtype());
}

BackwardPass* BackwardPass::current() { return running; }

void backward_inside(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  if (running == nullptr)
    throw Error("backward_inside() is for functions that a backward pass runs", ErrorKind::internal);
  run(outputs, gradients, true, *running);
}

void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients, const void* owner) {
  KEEL_CHECK(grad_mode() == GradMode::record,
             "backward was called inside NoGrad or inside another backward; "
             "a derivative of a derivative is not offered");
  BackwardPass pass(owner);
  {
    const Running scope(pass);
    run(outputs, gradients, false, pass);
  }
  for (std::size_t i = 0; i < pass.callbacks_.size(); ++i) pass.callbacks_[i]();
}

void backward(const Variable& loss, double seed) {
  KEEL_CHECK(loss.defined() && loss.value().numel() == 1, "backward needs a loss of one element, got ", loss.value());
  const Tensor gradient = make_seed(loss, seed);
  backward(std::span(&loss, 1), std::span(&gradient, 1));
}

}  // namespace keel
