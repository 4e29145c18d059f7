#pragma once
// The arrays that a host gives for a forward pass, and whether they fit a network.

#include <memory>
#include <vector>

#include "keel/capi/array.h"
#include "keel/capi/network.h"

namespace keel::capi {

// In the order of the network's inputs and outputs. What was not given is null.
struct Arrays {
  std::vector<std::shared_ptr<Array>> inputs;
  std::vector<std::shared_ptr<Array>> targets;  // of a loss; where inference writes its answers
  std::shared_ptr<Array> weights = {};          // of samples; null: each weighs 1
};

// Arrays that fit a network.
struct Samples {
  Arrays arrays;
  Dims extents;                      // (samples...)
  std::vector<double> weights = {};  // of the samples, in row-major order; empty: each weighs 1
  double weight = 0;                 // of all
};

// Throws an Error where inputs or weights do not fit. Weights are finite and at least 0.
Samples check_inputs(const Network& network, const Arrays& arrays);
// An Error unless the array is numbers (extents..., port.width), or (extents...) with a width of 1. `what`: "target".
void check_numbers(const Port& port, const Array* array, const Dims& extents, const char* what);
// An Error unless the array is classes (extents...).
void check_classes(const Port& port, const Array* array, const Dims& extents);
// An Error where the network has no answers to write there.
void check_answers(const Network& network, const Samples& samples);

// "target 'flux'"; of a network's only one "target".
std::string name_of(const char* what, const Port& port);

// The inputs as the network reads them.
std::vector<Tensor> read_inputs(const Network& network, const Samples& samples, DType dtype);

}  // namespace keel::capi
