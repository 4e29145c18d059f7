// Laws of every differentiable operation: central differences, every subset of inputs that need gradients, one leaf as
// two inputs, gradients that go where a buffer waits for them, every layout of every argument and of the gradients that
// arrive, and extents of 0.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>
#include <string>

#include "keel/autograd/backward.h"
#include "keel/autograd/gradcheck.h"
#include "keel/runtime/file.h"
#include "tests/autograd/operation_table.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::doubles;
using testing::Extents;
using testing::Holds;
using testing::Inputs;
using testing::Lies;
using testing::name_of;
using testing::OperationRow;
using testing::relative_error;

// The arguments of one call; all of f64 or whole numbers.
struct Arguments {
  std::vector<Tensor> numbers, others;
};

Arguments make_arguments(const Context& context, const OperationRow& operation, const Extents& extents) {
  Arguments made;
  for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
    const bool is_number = operation.arguments[i].holds == Holds::numbers;
    (is_number ? made.numbers : made.others)
        .push_back(testing::make_argument(context, operation, i, extents, DType::f64));
  }
  return made;
}

std::vector<Variable> leaves_of(const Arguments& arguments) {
  std::vector<Variable> leaves;
  for (const Tensor& numbers : arguments.numbers) leaves.emplace_back(numbers, true);
  return leaves;
}

std::vector<Variable> call(const OperationRow& operation, const std::vector<Variable>& numbers,
                           const Arguments& arguments, const Extents& extents) {
  return operation.call(Inputs{numbers, arguments.others, extents});
}

// A gradient for each output, dense.
std::vector<Tensor> gradients_for(std::span<const Variable> outputs) {
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    gradients.push_back(
        testing::uniform_tensor(outputs[i].context(), outputs[i].shape(), 90 + i, outputs[i].dtype(), 0.5, 1.5));
  return gradients;
}

std::vector<std::vector<double>> grads_of(const std::vector<Variable>& leaves) {
  std::vector<std::vector<double>> grads;
  for (const Variable& leaf : leaves) {
    const Tensor grad = leaf.grad();
    EXPECT_TRUE(!grad.defined() || grad.shape() == leaf.shape()) << grad;
    grads.push_back(grad.defined() ? doubles(grad) : std::vector<double>{});
  }
  return grads;
}

// The gradients of dense leaves, one each: what the laws compare with. Central differences confirm them.
std::vector<std::vector<double>> plain_gradients(const OperationRow& operation, const Arguments& arguments,
                                                 const Extents& extents) {
  const std::vector<Variable> leaves = leaves_of(arguments);
  const std::vector<Variable> outputs = call(operation, leaves, arguments, extents);
  backward(outputs, gradients_for(outputs));
  return grads_of(leaves);
}

// Up to the order of additions.
void expect_same(const OperationRow& operation, const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_LE(relative_error(a, b), operation.rounding);
}

// Each output by itself, the others without a gradient.
void expect_central_differences(const OperationRow& operation, const Arguments& arguments, const Extents& extents) {
  const GradcheckOptions options{.step = operation.step, .tolerance = std::max(1e-6, operation.step * operation.step)};
  const std::size_t outputs = call(operation, leaves_of(arguments), arguments, extents).size();
  for (std::size_t which = 0; which < outputs; ++which) {
    const auto function = [&](std::span<const Variable> v) {
      return call(operation, {v.begin(), v.end()}, arguments, extents)[which];
    };
    EXPECT_EQ(gradcheck(function, arguments.numbers, options), "") << "output " << which;
  }
}

// The sources name each operation where they record it.
TEST(Operations, HaveARowForEveryNameThatIsRecorded) {
  const Context context = testing::context(1);
  const Extents extents = testing::usual_extents();
  std::set<std::string, std::less<>> run;
  {
    const OperationTrace trace([&](std::string_view name, std::span<const Tensor>) { run.emplace(name); });
    for (const OperationRow& operation : testing::operations()) {
      const Arguments arguments = make_arguments(context, operation, extents);
      call(operation, leaves_of(arguments), arguments, extents);
    }
  }
  const std::regex recorded("(record|record_view|normalise)\\((NormKind::[a-z]+, |\\s*)\"([a-z_]+)\"");
  int names = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KEEL_SOURCE_DIR "/autograd")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string source = read_text_file(entry.path().string());
    for (std::sregex_iterator each(source.begin(), source.end(), recorded), end; each != end; ++each, ++names)
      EXPECT_TRUE(run.contains((*each)[3].str())) << (*each)[3] << " has no row in tests/autograd/operation_table.h";
  }
  EXPECT_GE(names, 25);
}

TEST(Operations, HaveTheGradientsOfCentralDifferences) {
  const Context context = testing::context(1);
  const Extents extents = testing::usual_extents();
  for (const OperationRow& operation : testing::operations()) {
    SCOPED_TRACE(operation.name);
    expect_central_differences(operation, make_arguments(context, operation, extents), extents);
  }
}

TEST(Operations, GiveEverySubsetOfInputsItsGradientsAndTheOthersNone) {
  const Context context = testing::context(1);
  const Extents extents = testing::usual_extents();
  for (const OperationRow& operation : testing::operations()) {
    SCOPED_TRACE(operation.name);
    const Arguments arguments = make_arguments(context, operation, extents);
    const auto expected = plain_gradients(operation, arguments, extents);
    for (unsigned needed = 1; needed < 1u << arguments.numbers.size(); ++needed) {
      std::vector<Variable> inputs;
      for (std::size_t i = 0; i < arguments.numbers.size(); ++i)
        inputs.emplace_back(arguments.numbers[i], (needed >> i & 1) != 0);
      const std::vector<Variable> outputs = call(operation, inputs, arguments, extents);
      backward(outputs, gradients_for(outputs));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        SCOPED_TRACE(concat("subset ", needed, ", input ", i));
        if ((needed >> i & 1) == 0) EXPECT_FALSE(inputs[i].grad().defined());
        else expect_same(operation, doubles(inputs[i].grad()), expected[i]);
      }
    }
  }
}

// Where a gradient accumulates in a buffer of somebody else's, which an operation may write to by itself.
Variable with_buffer(const Tensor& value, const Tensor& buffer, bool has_grad) {
  const Variable leaf(value, true);
  leaf.leaf()->grad = buffer;
  leaf.leaf()->assigned = true;
  leaf.leaf()->has_grad = has_grad;
  return leaf;
}

TEST(Operations, WriteGradientsToBuffersAndAddToWhatTheyHold) {
  const Context context = testing::context(1);
  const Extents extents = testing::usual_extents();
  for (const OperationRow& operation : testing::operations())
    for (const bool holds : {false, true}) {
      SCOPED_TRACE(concat(operation.name, holds ? ", adding" : ", writing"));
      const Arguments arguments = make_arguments(context, operation, extents);
      auto expected = plain_gradients(operation, arguments, extents);
      std::vector<Variable> leaves;
      for (const Tensor& numbers : arguments.numbers)
        leaves.push_back(with_buffer(numbers, kernels::full(context, numbers.shape(), 3, DType::f64), holds));
      const std::vector<Variable> outputs = call(operation, leaves, arguments, extents);
      backward(outputs, gradients_for(outputs));
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        for (double& each : expected[i]) each += holds ? 3 : 0;
        expect_same(operation, doubles(leaves[i].grad()), expected[i]);
      }
    }
}

// All extents alike, so that inputs of one rank have one shape.
Extents square_extents(const OperationRow& operation) {
  Extents extents = testing::usual_extents();
  if (operation.arguments.front().extents.find_first_of("hp") != std::string::npos) return extents;
  for (auto& [letter, extent] : extents) extent = 3;
  return extents;
}

TEST(Operations, GiveOneLeafAsTwoInputsTheSumOfBothGradients) {
  const Context context = testing::context(1);
  int pairs = 0;
  for (const OperationRow& operation : testing::operations()) {
    const Extents extents = square_extents(operation);
    const Arguments made = make_arguments(context, operation, extents);
    for (std::size_t second = 1; second < made.numbers.size(); ++second)
      for (std::size_t first = 0; first < second; ++first) {
        if (made.numbers[first].shape() != made.numbers[second].shape()) continue;
        ++pairs;
        Arguments arguments = made;
        arguments.numbers[second] = arguments.numbers[first];
        const auto expected = plain_gradients(operation, arguments, extents);
        std::vector<double> sum = expected[first];
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += expected[second][i];
        for (const bool has_buffer : {false, true}) {
          SCOPED_TRACE(concat(operation.name, ", inputs ", first, " and ", second, has_buffer ? ", in a buffer" : ""));
          std::vector<Variable> leaves = leaves_of(arguments);
          if (has_buffer)
            leaves[first] = with_buffer(arguments.numbers[first],
                                        kernels::full(context, arguments.numbers[first].shape(), 3, DType::f64), false);
          leaves[second] = leaves[first];
          const std::vector<Variable> outputs = call(operation, leaves, arguments, extents);
          backward(outputs, gradients_for(outputs));
          expect_same(operation, doubles(leaves[first].grad()), sum);
        }
      }
  }
  EXPECT_GE(pairs, 20);
}

// Replaces an argument, and gives the dense one that has the same numbers.
Tensor replace_by(Tensor& argument, Lies lies) {
  argument = testing::lay_out(argument, lies);
  return lies == Lies::repeated ? kernels::clone(argument) : Tensor();
}

// Every argument in every layout, one at a time, against the same numbers in dense memory.
void expect_layouts_alike(const OperationRow& operation, const Arguments& made, const Extents& extents) {
  const std::size_t count = made.numbers.size() + made.others.size();
  for (std::size_t which = 0; which < count; ++which)
    for (const Lies lies : testing::kLayouts) {
      SCOPED_TRACE(concat("argument ", which, " is ", name_of(lies)));
      Arguments dense = made, laid = made;
      const bool is_number = which < made.numbers.size();
      const auto place = [&](Arguments& of) -> Tensor& {
        return is_number ? of.numbers[which] : of.others[which - made.numbers.size()];
      };
      if (const Tensor same = replace_by(place(laid), lies); same.defined()) place(dense) = same;
      std::vector<std::vector<double>> results[2];
      for (const Arguments* arguments : {&dense, &laid}) {
        const std::vector<Variable> leaves = leaves_of(*arguments);
        const std::vector<Variable> outputs = call(operation, leaves, *arguments, extents);
        backward(outputs, gradients_for(outputs));
        auto& of = results[arguments == &laid];
        of = grads_of(leaves);
        for (const Variable& output : outputs) of.push_back(doubles(output.value()));
      }
      for (std::size_t i = 0; i < results[0].size(); ++i) expect_same(operation, results[1][i], results[0][i]);
    }
}

TEST(Operations, TakeEveryArgumentInEveryLayout) {
  const Context context = testing::context(1);
  const Extents extents = testing::usual_extents();
  for (const OperationRow& operation : testing::operations()) {
    SCOPED_TRACE(operation.name);
    expect_layouts_alike(operation, make_arguments(context, operation, extents), extents);
  }
}

// The caller keeps the gradients, so nobody may write to them; each arrives in several layouts, and several times.
TEST(Operations, TakeGradientsThatAreStridedOrSharedAndLeaveThemAsTheyWere) {
  const Context context = testing::context(1);
  const Extents extents = testing::usual_extents();
  for (const OperationRow& operation : testing::operations()) {
    const Arguments arguments = make_arguments(context, operation, extents);
    for (const Lies lies : testing::kLayouts) {
      SCOPED_TRACE(concat(operation.name, ", gradients are ", name_of(lies)));
      const auto run = [&](bool dense, int times) {
        const std::vector<Variable> leaves = leaves_of(arguments);
        const std::vector<Variable> outputs = call(operation, leaves, arguments, extents);
        std::vector<Tensor> gradients = gradients_for(outputs);
        for (Tensor& gradient : gradients) {
          gradient = testing::lay_out(gradient, lies);
          if (dense) gradient = kernels::clone(gradient);
        }
        std::vector<std::vector<double>> before;
        for (const Tensor& gradient : gradients) before.push_back(doubles(gradient));
        std::vector<Variable> all;
        std::vector<Tensor> all_gradients;
        for (int time = 0; time < times; ++time) {
          all.insert(all.end(), outputs.begin(), outputs.end());
          all_gradients.insert(all_gradients.end(), gradients.begin(), gradients.end());
        }
        backward(all, all_gradients);
        for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_EQ(doubles(gradients[i]), before[i]);
        return grads_of(leaves);
      };
      const auto expected = run(true, 1);
      for (const int times : {1, 2, 3}) {
        const auto grads = run(false, times);
        for (std::size_t i = 0; i < grads.size(); ++i) {
          std::vector<double> sum = expected[i];
          for (double& each : sum) each *= times;
          expect_same(operation, grads[i], sum);
        }
      }
    }
  }
}

// Fills memory that the next tensors get with NaN, so that what nobody writes is no number.
void spoil_free_memory(const Context& context) {
  std::vector<Tensor> held;
  for (std::int64_t count = 8; count <= 512; count += 8)
    for (int i = 0; i < 12; ++i) held.push_back(kernels::full(context, {count}, NAN, DType::f64));
}

bool all_are_numbers(const std::vector<double>& values) {
  return std::none_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

TEST(Operations, TakeExtentsOfZero) {
  const Context context = testing::context(1);
  for (const OperationRow& operation : testing::operations())
    for (const char letter : testing::letters_of(operation)) {
      SCOPED_TRACE(concat(operation.name, ", ", letter, " = 0"));
      Extents extents = testing::usual_extents();
      extents[letter] = 0;
      const Arguments arguments = make_arguments(context, operation, extents);
      if (operation.never_empty.find(letter) != std::string::npos) {
        EXPECT_NE(testing::error_of([&] { call(operation, leaves_of(arguments), arguments, extents); }), "");
        continue;
      }
      spoil_free_memory(context);
      const std::vector<Variable> leaves = leaves_of(arguments);
      const std::vector<Variable> outputs = call(operation, leaves, arguments, extents);
      const bool is_undefined = operation.mean_over.find(letter) != std::string::npos;
      for (const Variable& output : outputs) EXPECT_NE(all_are_numbers(doubles(output.value())), is_undefined);
      backward(outputs, gradients_for(outputs));
      for (const auto& grads : grads_of(leaves)) EXPECT_TRUE(all_are_numbers(grads));
      if (is_undefined) continue;
      expect_central_differences(operation, arguments, extents);
      expect_layouts_alike(operation, arguments, extents);
    }
}

TEST(Operations, OfNothingAreZeroOrTheBias) {
  const Context context = testing::context(1);
  const auto made = [&](const Dims& shape) { return Variable(testing::uniform_tensor(context, shape, 7)); };
  spoil_free_memory(context);
  EXPECT_EQ(doubles(matmul(made({2, 3, 0}), made({2, 0, 4})).value()), std::vector<double>(24, 0));
  const Variable bias = made({2});
  const std::vector<double> one = doubles(bias.value()), both = {one[0], one[1], one[0], one[1]};
  EXPECT_EQ(doubles(linear(made({2, 0}), made({2, 0}), bias).value()), both);
  EXPECT_EQ(doubles(linear_gelu(made({1, 0}), made({2, 0}), bias).value()), doubles(gelu_tanh(bias).value()));
  EXPECT_EQ(doubles(attention(made({1, 2, 3, 4}), made({1, 2, 0, 4}), made({1, 2, 0, 4})).value()),
            std::vector<double>(24, 0));
  EXPECT_EQ(doubles(sum(made({2, 0}), {1}).value()), std::vector<double>(2, 0));
  EXPECT_EQ(cross_entropy(made({0, 3}), zeros(context, {0}, DType::i64)).loss.value().item(), 0);
}

}  // namespace
}  // namespace keel
