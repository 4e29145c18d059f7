#include "keel/capi/samples.h"

#include <cmath>

#include "keel/kernels/elementwise.h"

namespace keel::capi {
namespace {

bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

const Tensor& given_tensor(const Port& port, const Array* array, const char* what) {
  KEEL_CHECK(array != nullptr, "the ", name_of(what, port), " is missing");
  return array->tensor;
}

void check_floating(const Tensor& tensor, const std::string& name) {
  KEEL_CHECK(is_floating(tensor.dtype()), "the ", name, " is ", tensor, ", but must be f32 or f64");
}

// The samples' extents of one input.
Dims extents_of(const Port& port, const Array* array) {
  const Tensor& tensor = given_tensor(port, array, "input");
  const std::string name = name_of("input", port);
  Dims extents = tensor.shape();
  if (port.width == 0) {
    KEEL_CHECK(is_index(tensor.dtype()), "the ", name, " is ", tensor, ", but must be i32 or i64");
    return extents;
  }
  check_floating(tensor, name);
  KEEL_CHECK(tensor.rank() >= 1 && tensor.dim(-1) == port.width, "the ", name, " is ", tensor,
             ", but its last extent must be ", port.width, ", the width of that input");
  extents.pop_back();
  return extents;
}

void weigh(Samples& samples) {
  const Tensor& given = samples.arrays.weights->tensor;
  KEEL_CHECK(is_floating(given.dtype()) && given.shape() == samples.extents, "the weights are ", given,
             ", but must be f32 or f64 ", samples.extents);
  const Tensor here = kernels::to(kernels::contiguous(given), given.context().host());
  given.context().synchronize();
  samples.weights = kernels::cast(here, DType::f64).to_vector<double>();
  samples.weight = 0;
  for (const double weight : samples.weights) {
    KEEL_CHECK(std::isfinite(weight) && weight >= 0, "a sample's weight is ", weight,
               "; weights must be finite and 0 or more");
    samples.weight += weight;
  }
}

}  // namespace

std::string name_of(const char* what, const Port& port) {
  return port.name == "input" || port.name == "output" ? what : concat(what, " '", port.name, "'");
}

Samples check_inputs(const Network& network, const Arrays& arrays) {
  const Dims extents = extents_of(network.inputs().front(), arrays.inputs.front().get());
  for (std::size_t i = 1; i < network.inputs().size(); ++i) {
    const Port& port = network.inputs()[i];
    const Dims its = extents_of(port, arrays.inputs[i].get());
    KEEL_CHECK(its == extents, "the ", name_of("input", port), " has samples ", its, ", but the ",
               name_of("input", network.inputs().front()), " has ", extents);
  }
  network.check_samples(extents);
  Samples samples{arrays, extents, {}, static_cast<double>(product(extents))};
  if (arrays.weights) weigh(samples);
  return samples;
}

void check_numbers(const Port& port, const Array* array, const Dims& extents, const char* what) {
  const Tensor& tensor = given_tensor(port, array, what);
  const std::string name = name_of(what, port);
  check_floating(tensor, name);
  if (port.width == 1 && tensor.shape() == extents) return;
  Dims shape = extents;
  shape.push_back(port.width);
  KEEL_CHECK(tensor.shape() == shape, "the ", name, " is ", tensor, ", but must be ", shape, " for samples ", extents,
             " and an output of width ", port.width);
}

void check_classes(const Port& port, const Array* array, const Dims& extents) {
  const Tensor& tensor = given_tensor(port, array, "target");
  KEEL_CHECK(is_index(tensor.dtype()) && tensor.shape() == extents, "the ", name_of("target", port), " is ", tensor,
             ", but must be i32 or i64 ", extents);
}

void check_answers(const Network& network, const Samples& samples) {
  for (std::size_t i = 0; i < network.outputs().size(); ++i) {
    const Array* array = samples.arrays.targets[i].get();
    check_numbers(network.outputs()[i], array, samples.extents, "output");
    check_writable(*array);
  }
}

std::vector<Tensor> read_inputs(const Network& network, const Samples& samples, DType dtype) {
  std::vector<Tensor> read;
  for (std::size_t i = 0; i < network.inputs().size(); ++i) {
    const Array& array = *samples.arrays.inputs[i];
    read.push_back(read_array(array, network.inputs()[i].width == 0 ? array.tensor.dtype() : dtype));
  }
  return read;
}

}  // namespace keel::capi
