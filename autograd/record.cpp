#include "keel/autograd/record.h"

#include <algorithm>

namespace keel {
namespace {

thread_local LeafCollector* collector = nullptr;
thread_local OperationTrace* trace = nullptr;

bool has_no_element(const Tensor& tensor) { return tensor.defined() && tensor.numel() == 0; }

}  // namespace

Saved::Saved(std::span<const Tensor> tensors) {
  entries_.reserve(tensors.size());
  for (const Tensor& tensor : tensors) entries_.push_back({tensor, tensor.defined() ? tensor.storage()->version() : 0});
}

const Tensor& Saved::operator[](std::size_t i) const {
  const Entry& entry = entries_[i];
  if (!entry.tensor.defined()) return entry.tensor;
  Storage& storage = *entry.tensor.storage();
  storage.make_ready();  // a sharded parameter comes back now, and not in a thread of the kernel
  KEEL_CHECK(storage.version() == entry.version, "the backward of ", name_, " needs ", entry.tensor,
             ", which was changed in place after the forward pass; clone it before writing to it");
  return entry.tensor;
}

bool Need::operator[](std::size_t input) const { return node_.input(input).needed(); }

std::optional<Destination> Need::destination(std::size_t input) const {
  const std::shared_ptr<Leaf>& leaf = node_.input(input).leaf;
  if (!leaf || !leaf->grad.defined()) return std::nullopt;
  // An input that occurs twice cannot be written to before its first contribution has landed.
  for (std::size_t i = 0; i < input; ++i)
    if (node_.input(i).leaf == leaf) return std::nullopt;
  return Destination{leaf->grad, leaf->has_grad};
}

Leaf* Need::sparse_leaf(std::size_t input) const {
  const std::shared_ptr<Leaf>& leaf = node_.input(input).leaf;
  return leaf && leaf->sparse ? leaf.get() : nullptr;
}

Node::Node(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs,
           std::span<const Tensor> saved, BackwardFunction function)
    : name_(name), saved_(saved), function_(std::move(function)) {
  saved_.name_ = name;
  for (const Tensor& output : outputs) outputs_.push_back({output.shape(), output.dtype()});
  inputs_.reserve(inputs.size());
  for (const Variable& input : inputs) {
    inputs_.push_back({input.node(), input.output_index(), input.leaf(), input.defined() ? input.shape() : Dims{}});
    if (input.node()) sequence_ = std::max(sequence_, input.node()->sequence());
  }
  ++sequence_;
}

Node::~Node() { release_inputs(); }

const Node::Edge& Node::input(std::size_t i) const {
  if (i >= inputs_.size())
    throw Error(concat(name_, " has ", inputs_.size(), " inputs, but its backward asks for number ", i),
                ErrorKind::internal);
  return inputs_[i];
}

void Node::release_inputs() {
  std::vector<std::shared_ptr<Node>> pending;
  const auto take = [&pending](std::vector<Edge>& edges) {
    for (Edge& edge : edges)
      if (edge.node && edge.node.use_count() == 1) pending.push_back(std::move(edge.node));
    edges.clear();
  };
  take(inputs_);
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    take(node->inputs_);
  }
}

Gradients Node::run(std::span<const Tensor> grad_outputs) {
  if (released_)
    throw Error(concat("backward went through ", name_,
                       " before and its saved tensors are gone; a second backward through one graph is not offered: "
                       "compute the loss again, or add the losses and call backward once"));
  released_ = true;
  const NoGrad no_grad;
  Gradients gradients = function_(saved_, grad_outputs, Need(*this));
  function_ = nullptr;
  saved_ = Saved();
  if (gradients.size() != inputs_.size())
    throw Error(
        concat(name_, " has ", inputs_.size(), " inputs, but its backward gave ", gradients.size(), " gradients"),
        ErrorKind::internal);
  return gradients;
}

OperationTrace::OperationTrace(Callback callback) : callback_(std::move(callback)), outer_(trace) { trace = this; }
OperationTrace::~OperationTrace() { trace = outer_; }

void trace_operation(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs) {
  const auto takes_none = [](const Variable& input) { return input.defined() && has_no_element(input.value()); };
  if (std::ranges::any_of(outputs, has_no_element) || std::ranges::any_of(inputs, takes_none))
    for (const Variable& input : inputs)
      if (input.defined()) input.value().storage()->make_ready();
  if (trace != nullptr) trace->callback_(name, outputs);
}

bool must_record(std::span<const Variable> inputs) {
  if (collector)
    for (const Variable& input : inputs) {
      if (!input.leaf()) continue;
      auto& leaves = collector->leaves_;
      const auto same = [&](const Variable& other) { return other.leaf() == input.leaf(); };
      if (std::none_of(leaves.begin(), leaves.end(), same)) leaves.push_back(input);
    }
  return grad_mode() == GradMode::record &&
         std::any_of(inputs.begin(), inputs.end(), [](const Variable& v) { return v.requires_grad(); });
}

std::vector<Variable> record(std::string_view name, std::span<const Tensor> outputs, std::span<const Variable> inputs,
                             std::span<const Tensor> saved, BackwardFunction function) {
  trace_operation(name, outputs, inputs);
  std::vector<Variable> variables;
  variables.reserve(outputs.size());
  if (!must_record(inputs)) {
    for (const Tensor& output : outputs) variables.emplace_back(output);
    return variables;
  }
  const auto node = std::make_shared<Node>(name, outputs, inputs, saved, std::move(function));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    variables.push_back(Variable::from_node(outputs[i], node, static_cast<int>(i)));
  return variables;
}

LeafCollector::LeafCollector() : outer_(collector) { collector = this; }

// What it has noted are inputs of the checkpoint that it serves, so that an outer one notes them from there.
LeafCollector::~LeafCollector() { collector = outer_; }

}  // namespace keel
