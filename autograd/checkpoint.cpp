#include "keel/autograd/checkpoint.h"

#include "keel/autograd/backward.h"
#include "keel/autograd/flops.h"
#include "keel/autograd/record.h"

namespace keel {
namespace {

// Runs the function again and lets its gradients flow: into leaves directly, to the inputs as the result.
Gradients recompute(const CheckpointedFunction& function, std::size_t input_count, std::size_t leaf_count,
                    RandomStream* random, std::uint32_t first_call, const Saved& saved,
                    std::span<const Tensor> grad_outputs, const Need& need) {
  const std::uint32_t resume_call = random ? random->next_call : 0;
  if (random) random->next_call = first_call;
  const WithGrad with_grad;
  std::vector<Variable> inputs;
  for (std::size_t i = 0; i < input_count; ++i) inputs.emplace_back(saved[i], need[i]);
  std::vector<Variable> outputs;
  {
    const FlopCount not_of_the_model;
    outputs = function(inputs);
  }
  if (random) random->next_call = resume_call;

  std::vector<Variable> reached;
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!grad_outputs[i].defined()) continue;
    reached.push_back(outputs[i]);
    gradients.push_back(grad_outputs[i]);
  }
  backward_inside(reached, gradients);

  Gradients result(input_count + leaf_count);
  for (std::size_t i = 0; i < input_count; ++i)
    if (need[i]) result[i] = inputs[i].grad();
  return result;
}

}  // namespace

std::vector<Variable> checkpoint(const CheckpointedFunction& function, std::span<const Variable> inputs,
                                 RandomStream* random) {
  const std::uint32_t first_call = random ? random->next_call : 0;
  std::vector<Variable> outputs;
  std::vector<Variable> dependencies(inputs.begin(), inputs.end());
  {
    const LeafCollector collector;
    const NoGrad no_grad;
    std::vector<Variable> detached;
    for (const Variable& input : inputs) detached.push_back(input.detach());
    outputs = function(detached);
    dependencies.insert(dependencies.end(), collector.leaves().begin(), collector.leaves().end());
  }
  std::vector<Tensor> values, saved;
  for (const Variable& output : outputs) values.push_back(output.value());
  for (const Variable& input : inputs) saved.push_back(input.value());
  const std::size_t leaf_count = dependencies.size() - inputs.size();
  return record("checkpoint", values, dependencies, saved,
                [function, input_count = inputs.size(), leaf_count, random, first_call](
                    const Saved& kept, std::span<const Tensor> grad_outputs, const Need& need) {
                  return recompute(function, input_count, leaf_count, random, first_call, kept, grad_outputs, need);
                });
}

Variable checkpoint(const std::function<Variable(const Variable&)>& function, const Variable& input,
                    RandomStream* random) {
  const CheckpointedFunction general = [function](std::span<const Variable> inputs) {
    return std::vector<Variable>{function(inputs[0])};
  };
  return checkpoint(general, std::span(&input, 1), random).front();
}

}  // namespace keel
