#pragma once
// Activation checkpointing: forget what a function saved, and compute it again during backward.

#include <functional>
#include <span>
#include <vector>

#include "keel/autograd/variable.h"
#include "keel/runtime/random.h"

namespace keel {

using CheckpointedFunction = std::function<std::vector<Variable>(std::span<const Variable> inputs)>;

// Returns function(inputs) while keeping only the inputs (Chen et al. 2016). During backward the
// function runs once more and its gradients flow on: to `inputs`, and to every leaf that it touched
// besides (its weights). It must compute the same again; when it draws random numbers, `random` is
// the stream they come from, whose call numbers are replayed.
std::vector<Variable> checkpoint(const CheckpointedFunction& function, std::span<const Variable> inputs,
                                 RandomStream* random = nullptr);

// For the common case of one input and one output.
Variable checkpoint(const std::function<Variable(const Variable&)>& function, const Variable& input,
                    RandomStream* random = nullptr);

}  // namespace keel
