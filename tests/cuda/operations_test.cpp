// Every differentiable operation on a device: the processor's results and gradients, for every layout of every argument
// and for extents of 0.

#include "tests/autograd/operation_table.h"

#include "keel/autograd/backward.h"
#include "tests/cuda/device.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

class OperationsOnDevice : public OnDevice {};
// The kernels' own suites run in every order.
INSTANTIATE_TEST_SUITE_P(, OperationsOnDevice, ::testing::Values(Order::forward),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

// Outputs and gradients, as the processor reads them.
std::vector<Tensor> results_of(const OperationRow& operation, const std::vector<Tensor>& arguments,
                               const Extents& extents) {
  Inputs inputs{{}, {}, extents};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (operation.arguments[i].holds == Holds::numbers) inputs.numbers.emplace_back(arguments[i], true);
    else inputs.others.push_back(arguments[i]);
  }
  const std::vector<Variable> leaves = inputs.numbers, outputs = operation.call(inputs);
  std::vector<Tensor> results, gradients;
  for (const Variable& output : outputs) {
    results.push_back(output.value());
    gradients.push_back(uniform_tensor(output.context(), output.shape(), 90, output.dtype(), 0.5, 1.5));
  }
  backward(outputs, gradients);
  for (const Variable& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

// The argument `which` lies as said; the others are dense.
std::vector<Tensor> arguments_of(const Context& context, const OperationRow& operation, const Extents& extents,
                                 std::size_t which, Lies lies) {
  std::vector<Tensor> arguments;
  for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
    const Tensor dense = make_argument(context, operation, i, extents, DType::f32);
    arguments.push_back(i == which ? lay_out(dense, lies) : dense);
  }
  return arguments;
}

void expect_the_processors_results(const Context& device, const Context& host, const OperationRow& operation,
                                   const Extents& extents) {
  for (std::size_t which = 0; which < operation.arguments.size(); ++which)
    for (const Lies lies : kLayouts) {
      if (lies == Lies::dense && which > 0) continue;
      SCOPED_TRACE(concat("argument ", which, " is ", name_of(lies)));
      const std::vector<Tensor> there =
          results_of(operation, arguments_of(device, operation, extents, which, lies), extents);
      const std::vector<Tensor> here =
          results_of(operation, arguments_of(host, operation, extents, which, lies), extents);
      ASSERT_EQ(there.size(), here.size());
      for (std::size_t i = 0; i < there.size(); ++i) expect_close(there[i], here[i], 10, 1);
    }
}

TEST_P(OperationsOnDevice, GiveTheProcessorsResultsForEveryLayoutOfEveryArgument) {
  const Extents extents = usual_extents();
  for (const OperationRow& operation : operations()) {
    SCOPED_TRACE(operation.name);
    expect_the_processors_results(device, host, operation, extents);
  }
}

TEST_P(OperationsOnDevice, TakeExtentsOfZero) {
  for (const OperationRow& operation : operations())
    for (const char letter : letters_of(operation)) {
      if (operation.never_empty.find(letter) != std::string::npos) continue;
      SCOPED_TRACE(concat(operation.name, ", ", letter, " = 0"));
      Extents extents = usual_extents();
      extents[letter] = 0;
      expect_the_processors_results(device, host, operation, extents);
    }
}

}  // namespace
}  // namespace keel
