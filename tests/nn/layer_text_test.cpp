// Models from a text: what is read, what is refused, and that they compute what the layers do.

#include "keel/nn/layer_text.h"

#include <gtest/gtest.h>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/flat_buffer.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

std::vector<std::string> names_of(Module& model) {
  std::vector<std::string> names;
  for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    names.push_back(concat(name, ' ', parameter.shape()));
  });
  return names;
}

TEST(LayerText, OfDenseLayersHasTheBitsOfAnMlp) {
  TextModel text("dense 8 tanh; dense 3", 4);
  Mlp mlp({4, 8, 3}, ActivationKind::tanh);
  EXPECT_EQ(names_of(text), names_of(mlp));
  const Context host = testing::context(1);
  const auto one = materialize(text, host, {.seed = 5}), other = materialize(mlp, host, {.seed = 5});
  std::vector<float> numbers;
  for (const double v : uniform(20, 3)) numbers.push_back(static_cast<float>(v));
  const Tensor x = from_values(host, numbers, {5, 4});
  Forward pass;
  EXPECT_EQ(text(std::span(&x, 1), pass).front().value().to_vector<float>(),
            mlp(Variable(x)).value().to_vector<float>());
}

// With dropout, so that masks are drawn again as they were.
TEST(LayerText, ComputedAgainHasTheSameGradientsInLessMemory) {
  const Context host = testing::context(1);
  const auto train = [&](bool recompute, std::size_t& kept) {
    TextModel model("layernorm; dense 64 gelu; rmsnorm; dropout 0.25; dense 64; tanh; relu; output y 2", 4);
    model.recompute = recompute;
    const std::vector<FlatBuffer> memory = materialize(model, host, {.seed = 5});
    const Tensor x = testing::uniform_tensor(host, {32, 4}, 3);
    const std::size_t before = host.memory().total.current;
    Forward pass{.training = true, .random = {1, 2, 0}, .sample_ids = kernels::arange(host, 0, 32)};
    const Variable loss = mean(square(model(std::span(&x, 1), pass).front()));
    kept = host.memory().total.current - before;
    backward(loss);
    std::vector<double> all = testing::doubles(loss.value());
    for (const FlatBuffer& buffer : memory)
      for (const double value : testing::doubles(buffer.gradient)) all.push_back(value);
    return all;
  };
  std::size_t kept = 0, kept_of_all = 0;
  EXPECT_TRUE(train(true, kept) == train(false, kept_of_all));
  EXPECT_LT(2 * kept, kept_of_all);
}

TEST(LayerText, PutsNamedInputsTogetherAndGivesEachOutputALayer) {
  TextModel model(
      "input wind 3; input heat 1\nembedding soil 5 2\n dense 8 gelu; layernorm; relu; rmsnorm; dropout 0.25;"
      "output flux 2; output rain 1;");
  EXPECT_EQ(names_of(model),
            (std::vector<std::string>{"inputs.soil.weight (5, 2)", "layers.0.weight (8, 6)", "layers.0.bias (8)",
                                      "layers.1.weight (8)", "layers.1.bias (8)", "layers.3.weight (8)",
                                      "outputs.flux.weight (2, 8)", "outputs.flux.bias (2)",
                                      "outputs.rain.weight (1, 8)", "outputs.rain.bias (1)"}));
  const Context host = testing::context(1);
  const auto memory = materialize(model, host, {.seed = 5});
  const std::vector<Tensor> inputs = {kernels::full(host, {4, 3}, 1), kernels::full(host, {4, 1}, 2),
                                      from_values(host, std::vector<std::int64_t>{0, 4, 4, 0}, {4})};
  Forward pass;
  const std::vector<Variable> outputs = model(inputs, pass);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape(), (Dims{4, 2}));
  EXPECT_EQ(outputs[1].shape(), (Dims{4, 1}));
  const auto rain = outputs[1].value().to_vector<float>();
  EXPECT_EQ(rain[0], rain[3]);
  EXPECT_EQ(rain[1], rain[2]);
  EXPECT_NE(rain[0], rain[1]);
  Forward training{.training = true, .random = {1, 2, 0}, .sample_ids = kernels::arange(host, 0, 4)};
  EXPECT_NE(model(inputs, training)[1].value().to_vector<float>(), rain) << "dropout drops";
}

TEST(LayerText, EachItemHasAsManyWordsAsItsUsageSays) {
  struct Usage {
    std::string fewest, more, usage;  // the fewest words, and those that may follow
  };
  const Usage usages[] = {{"input a 3", "", "input NAME WIDTH"},
                          {"embedding a 5 2", "", "embedding NAME CLASSES WIDTH"},
                          {"dense 8", " tanh", "dense WIDTH [ACTIVATION]"},
                          {"layernorm", "", "layernorm"},
                          {"rmsnorm", "", "rmsnorm"},
                          {"dropout 0.5", "", "dropout PROBABILITY"},
                          {"output a 3", "", "output NAME WIDTH"},
                          {"relu", "", "relu"}};
  for (const Usage& each : usages) {
    const std::string &fewest = each.fewest, &usage = each.usage, most = each.fewest + each.more;
    const bool is_input = usage.starts_with("input") || usage.starts_with("embedding");
    const std::string before = is_input ? "" : "input first 4;";
    const auto said = [&](const std::string& item) { return error_of([&] { TextModel model(before + item, 0); }); };
    const auto expects = [&](std::size_t at) {
      return concat("the model's text, character ", before.size() + at, ": expects `", usage, "`");
    };
    EXPECT_EQ(said(fewest), "");
    EXPECT_EQ(said(most), "");
    EXPECT_EQ(said(most + " 4"), expects(most.size() + 2));
    EXPECT_EQ(said(most + " 4 5"), expects(most.size() + 2));
    for (std::size_t end = fewest.rfind(' '); end != std::string::npos; end = fewest.rfind(' ', end - 1))
      EXPECT_EQ(said(fewest.substr(0, end)), expects(1)) << fewest.substr(0, end);
  }
}

TEST(LayerText, NamesTheCharacterAtWhichSomethingIsWrong) {
  const auto said = [](const std::string& text, std::int64_t inputs = 4) {
    return error_of([&] { TextModel model(text, inputs); });
  };
  const auto begins = [](const std::string& message, const std::string& with) {
    return message.starts_with("the model's text, character " + with);
  };
  EXPECT_TRUE(begins(said(""), "1: there is nothing")) << said("");
  EXPECT_TRUE(begins(said(" ;; \n"), "1: there is nothing"));
  EXPECT_TRUE(begins(said("dense 8; dens 3"), "10: 'dens' is none of input, embedding, dense, ")) << said("dens 3");
  EXPECT_NE(said("wind 3").find("known are relu, gelu"), std::string::npos) << said("wind 3");
  EXPECT_TRUE(begins(said("dense"), "1: expects `dense WIDTH [ACTIVATION]`"));
  EXPECT_TRUE(begins(said("dense 8 tanh 4"), "14: expects `dense WIDTH [ACTIVATION]`"));
  EXPECT_TRUE(begins(said("relu 3"), "6: expects `relu`"));
  EXPECT_TRUE(said("dens 3").ends_with("; did you mean 'dense'?")) << said("dens 3");
  EXPECT_TRUE(begins(said("dense 8 thanh"), "9: unknown activation 'thanh'"));
  for (const char* bad : {"0", "-1", "x", "3x", "1e3", "99999999999999999999", "1073741825"})
    EXPECT_TRUE(begins(said(concat("dense ", bad)), "7: '")) << bad;
  for (const char* bad : {"1", "-0.1", "nan", "x", "0.5x"})
    EXPECT_TRUE(begins(said(concat("dropout ", bad)), "9: '")) << bad;
  EXPECT_TRUE(begins(said("dense 2; input a 3"), "10: 'input' comes too late"));
  EXPECT_TRUE(begins(said("input a 3"), "1: 'input' comes too late")) << "beside a width that the caller gives";
  EXPECT_TRUE(begins(said("output a 3; dense 2"), "13: 'dense' comes too late"));
  EXPECT_TRUE(begins(said("dense 3", 0), "1: there is no input"));
  EXPECT_TRUE(begins(said("input a 3; input a 4", 0), "18: there are two of the name 'a'"));
  EXPECT_TRUE(begins(said("input 3 4", 0), "7: '3' is no name"));
  EXPECT_TRUE(begins(said("output o.p 4"), "8: 'o.p' is no name"));
  for (const char* bad : {"0a", "9a", "a@", "a[", "a`", "a{", "a/", "a:", "a^"})
    EXPECT_TRUE(begins(said(concat("output ", bad, " 4")), concat("8: '", bad, "' is no name"))) << bad;
  for (const char* good : {"A", "Z9", "az", "_0", "z_Z"}) EXPECT_EQ(said(concat("output ", good, " 4")), "") << good;
  EXPECT_TRUE(begins(said("layernorm 3"), "11: expects `layernorm`"));
  EXPECT_TRUE(begins(said("dropout"), "1: expects `dropout PROBABILITY`"));
  EXPECT_EQ(said("dense 1073741824"), "") << "the largest width";
  EXPECT_EQ(said("dense 3", std::int64_t{1} << 30), "");
  EXPECT_EQ(said("dense 3", -1), "a width of -1 is not in [0, 1073741824]");
  EXPECT_EQ(said("dense 3", (std::int64_t{1} << 30) + 1), "a width of 1073741825 is not in [0, 1073741824]");
}

}  // namespace
}  // namespace keel
