// The building blocks: every gradient against differences, and the formulas that they stand for.

#include "keel/nn/layers.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "keel/autograd/backward.h"
#include "keel/autograd/elementwise.h"
#include "keel/autograd/gradcheck.h"
#include "keel/autograd/reduce.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/state.h"
#include "keel/nn/transformer.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;
using testing::uniform_tensor;

std::vector<FlatBuffer> materialize_f64(Module& model, const Context& context) {
  return materialize(model, context, {.policy = PrecisionPolicy::of(DType::f64)});
}

// Gradcheck in the input and in every parameter of a module, whose numbers become random.
std::string gradcheck_module(Module& module, const Dims& shape,
                             const std::function<Variable(const Variable& x)>& forward) {
  const Context context = testing::context(1);
  const std::vector<FlatBuffer> buffers = materialize_f64(module, context);
  std::vector<Tensor> inputs = {uniform_tensor(context, shape, 1, DType::f64)};
  std::vector<std::shared_ptr<Parameter::State>> parameters;
  for_each_parameter(module, [&](const std::string&, Parameter& parameter) {
    parameters.push_back(parameter.state());
    inputs.push_back(uniform_tensor(context, parameter.shape(), inputs.size() + 1, DType::f64));
  });
  return gradcheck(
      [&](std::span<const Variable> given) {
        for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i]->variable = given[i + 1];
        return forward(given[0]);
      },
      inputs);
}
std::string gradcheck_layer(Layer& layer, const Dims& shape) {
  return gradcheck_module(layer, shape, [&](const Variable& x) { return layer(x); });
}

TEST(Layers, GradientsEqualDifferences) {
  Linear linear(3, 4), without_bias(3, 4, false);
  LayerNorm layer_norm(6), layer_norm_without_bias(6, false);
  RMSNorm rms_norm(6);
  Mlp mlp({3, 5, 2}, ActivationKind::silu);
  Sequential chain(Linear(3, 4), Activation(ActivationKind::gelu), LayerNorm(4), Linear(4, 2));
  EXPECT_EQ(gradcheck_layer(linear, {2, 5, 3}), "");
  EXPECT_EQ(gradcheck_layer(without_bias, {2, 3}), "");
  EXPECT_EQ(gradcheck_layer(layer_norm, {4, 6}), "");
  EXPECT_EQ(gradcheck_layer(layer_norm_without_bias, {2, 2, 6}), "");
  EXPECT_EQ(gradcheck_layer(rms_norm, {4, 6}), "");
  EXPECT_EQ(gradcheck_layer(mlp, {4, 3}), "");
  EXPECT_EQ(gradcheck_layer(chain, {4, 3}), "");
  for (const char* name : {"gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}) {
    Activation activation(parse_activation(name));
    EXPECT_EQ(gradcheck_layer(activation, {3, 4}), "") << name;
  }
}

TEST(Layers, GradientsOfATransformerBlockEqualDifferences) {
  for (const int kv_heads : {4, 2}) {
    TransformerBlock block({.width = 8, .heads = 4, .kv_heads = kv_heads});
    const auto forward = [&](const Variable& x) {
      Forward pass;
      const ResidualStream stream = block({.sum = x}, pass);
      return add(stream.sum, stream.branch);
    };
    EXPECT_EQ(gradcheck_module(block, {2, 5, 8}, forward), "") << kv_heads;
  }
}

TEST(Layers, ATransformerBlockIsItsFormula) {
  const Context context = testing::context(1);
  for (const bool has_bias : {true, false}) {
    TransformerBlock block({.width = 8, .heads = 4, .bias = has_bias});
    const std::vector<FlatBuffer> buffers = materialize_f64(block, context);
    const Variable x(uniform_tensor(context, {2, 5, 8}, 1, DType::f64));
    Forward pass;
    const ResidualStream stream = block({.sum = x}, pass);
    const Variable middle = add(x, block.attn(block.ln_1(x), pass));
    const Variable hidden = gelu_tanh(block.mlp.c_fc(block.ln_2(middle)));
    EXPECT_LT(relative_error(doubles(add(stream.sum, stream.branch).value()),
                             doubles(add(middle, block.mlp.c_proj(hidden)).value())),
              1e-14);
    // The second half of a sequence does not reach the first one.
    const Variable begin(x.value().slice(1, 0, 3));
    EXPECT_LT(
        relative_error(doubles(block.attn(begin, pass).value()), doubles(block.attn(x, pass).value().slice(1, 0, 3))),
        1e-14);
    EXPECT_EQ(block.mlp.c_fc.weight.shape(), (Dims{32, 8}));
  }
}

TEST(Layers, ABlockNeedsHeadsThatDivideItsWidth) {
  const auto refusal = [](const BlockOptions& options) {
    return testing::error_of([&] { MultiHeadAttention attention(options); });
  };
  EXPECT_EQ(refusal({.width = 8, .heads = 1}), "");
  EXPECT_EQ(refusal({.width = 8, .heads = 8, .kv_heads = 1}), "");
  EXPECT_EQ(refusal({.width = 8, .heads = 3}), "width 8 is not a multiple of 3 heads");
  EXPECT_EQ(refusal({.width = 8, .heads = 0, .kv_heads = 1}), "width 8 is not a multiple of 0 heads");
  EXPECT_EQ(refusal({.width = 8, .heads = 4, .kv_heads = 3}), "4 heads are not a multiple of 3 key/value heads");
  EXPECT_EQ(refusal({.width = 8, .attention_dropout = 1}), "attention dropout must be in [0, 1), got 1");
  EXPECT_EQ(refusal({.width = 8, .attention_dropout = -0.1}), "attention dropout must be in [0, 1), got -0.1");

  const MultiHeadAttention attention({.width = 12, .heads = 6, .kv_heads = 2});
  std::vector<std::int64_t> rows;
  for (const LinearPart& part : attention.c_attn.parts) rows.push_back(part.rows);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{12, 4, 4}));
}

// Queries, keys and values in one product, of which keys and values have an adapter each.
TEST(Layers, AnAdapterAddsAProductOfLowRankToItsPart) {
  const Context context = testing::context(1);
  Linear layer(3, 6);
  layer.parts = {{"q", 2}, {"k", 1}, {"v", 3}};
  layer.add_adapter("v", 2, 0.5, 0.5);
  layer.add_adapter("k", 1, 2, 0);
  const std::vector<FlatBuffer> buffers = materialize_f64(layer, context);
  for (LowRankAdapter& each : layer.adapters)
    kernels::copy_into(each.b.value(), uniform_tensor(context, each.b.shape(), 7, DType::f64));
  const Tensor x = uniform_tensor(context, {4, 3}, 1, DType::f64);
  const std::vector<double> xs = doubles(x), weight = doubles(layer.weight.value()), bias = doubles(layer.bias.value());
  // With factors on what the adapter of v reads.
  const auto expected = [&](const std::vector<double>& kept) {
    std::vector<double> out;
    for (std::size_t row = 0; row < 4; ++row)
      for (std::size_t o = 0; o < 6; ++o) {
        double sum = bias[o];
        for (std::size_t in = 0; in < 3; ++in) sum += xs[row * 3 + in] * weight[o * 3 + in];
        for (const LowRankAdapter& each : layer.adapters) {
          const std::int64_t own = static_cast<std::int64_t>(o) - each.first_row;
          if (own < 0 || own >= each.b.shape()[0]) continue;
          const std::vector<double> a = doubles(each.a.value()), b = doubles(each.b.value());
          const auto rank = static_cast<std::size_t>(each.a.shape()[0]);
          for (std::size_t r = 0; r < rank; ++r)
            for (std::size_t in = 0; in < 3; ++in)
              sum += each.scale * b[static_cast<std::size_t>(own) * rank + r] * a[r * 3 + in] * xs[row * 3 + in] *
                     (each.part == "v" ? kept[row * 3 + in] : 1);
        }
        out.push_back(sum);
      }
    return out;
  };
  EXPECT_EQ(layer.adapters[0].first_row, 3);
  EXPECT_EQ(layer.adapters[1].first_row, 2);
  EXPECT_LT(relative_error(doubles(layer(Variable(x)).value()), expected(std::vector<double>(12, 1))), 1e-14);

  const auto training = [&] {
    return Forward{.training = true, .random = {3, 4, 0}, .sample_ids = kernels::arange(context, 0, 4)};
  };
  Forward pass = training(), again = training();
  const Variable ones(testing::tensor_of(context, std::vector<double>(12, 1), {4, 1, 3}, DType::f64));
  const std::vector<double> kept = doubles(Dropout(0.5)(ones, again).value());
  EXPECT_NE(kept, std::vector<double>(12, 1));
  EXPECT_LT(relative_error(doubles(layer(Variable(x), pass).value()), expected(kept)), 1e-14);
}

TEST(Layers, AnAdapterThatCannotBeIsRefused) {
  const auto refusal = [](std::string_view part, std::int64_t rank, double dropout, bool is_whole = false) {
    Linear layer(3, 6);
    if (!is_whole) layer.parts = {{"q", 2}, {"k", 1}, {"v", 3}};
    if (!is_whole) layer.add_adapter("k", 1, 1, 0);
    return testing::error_of([&] { layer.add_adapter(part, rank, 1, dropout); });
  };
  EXPECT_EQ(refusal("q", 1, 0), "");
  EXPECT_EQ(refusal("v", 1, 0.9), "");
  EXPECT_EQ(refusal("", 1, 0, true), "");
  EXPECT_EQ(refusal("q", 0, 0), "an adapter has a rank of at least 1, got 0");
  EXPECT_EQ(refusal("q", 1, 1), "an adapter's dropout must be in [0, 1), got 1");
  EXPECT_EQ(refusal("q", 1, -0.5), "an adapter's dropout must be in [0, 1), got -0.5");
  EXPECT_EQ(refusal("k", 1, 0), "outputs 2 to 3 of a linear layer have an adapter already");
  EXPECT_EQ(refusal("w", 1, 0), "a linear layer of several, (6, 3), has no part 'w'");
  EXPECT_EQ(refusal("q", 1, 0, true), "a linear layer (6, 3) has no part 'q'");
}

TEST(Layers, LinearIsItsFormula) {
  const Context context = testing::context(1);
  Linear layer(3, 2);
  const std::vector<FlatBuffer> buffers = materialize_f64(layer, context);
  const Tensor x = uniform_tensor(context, {4, 3}, 1, DType::f64);
  const std::vector<double> xs = doubles(x), weight = doubles(layer.weight.value()), bias = doubles(layer.bias.value());
  std::vector<double> expected;
  for (int row = 0; row < 4; ++row)
    for (int out = 0; out < 2; ++out) {
      double sum = bias[out];
      for (int in = 0; in < 3; ++in) sum += xs[row * 3 + in] * weight[out * 3 + in];
      expected.push_back(sum);
    }
  EXPECT_LT(relative_error(doubles(layer(Variable(x)).value()), expected), 1e-14);
}

TEST(Layers, ChainsAreTheirLayersOneAfterTheOther) {
  const Context context = testing::context(1);
  Sequential chain(Linear(3, 4), LayerNorm(4), Linear(4, 2));
  const std::vector<FlatBuffer> of_chain = materialize_f64(chain, context);
  const Variable x(uniform_tensor(context, {5, 3}, 1, DType::f64));
  Variable h = x;
  for (const auto& layer : chain.layers) h = (*layer)(h);
  EXPECT_EQ(doubles(chain(x).value()), doubles(h.value()));
  EXPECT_EQ(chain(x).dim(1), 2);
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{3, 2}, {3, 5, 4}, {3, 4, 5, 2}}) {
    Mlp mlp(sizes, ActivationKind::tanh);
    const std::vector<FlatBuffer> buffers = materialize_f64(mlp, context);
    ASSERT_EQ(mlp.layers.size(), sizes.size() - 1);
    h = x;
    for (std::size_t i = 0; i < mlp.layers.size(); ++i) h = mlp.layers[i](i == 0 ? h : tanh(h));
    EXPECT_EQ(doubles(mlp(x).value()), doubles(h.value()));
  }
  EXPECT_THROW(Mlp({3}), Error);
}

TEST(Layers, AnActivationIsTheFunctionOfItsName) {
  const Context context = testing::context(1);
  const Variable x(uniform_tensor(context, {20}, 1, DType::f64, -3, 3));
  const std::pair<const char*, Variable (*)(const Variable&)> functions[] = {
      {"relu", relu}, {"gelu", gelu}, {"gelu_tanh", gelu_tanh}, {"silu", silu}, {"tanh", tanh}, {"sigmoid", sigmoid}};
  for (const auto& [name, function] : functions)
    EXPECT_EQ(doubles(Activation(parse_activation(name))(x).value()), doubles(function(x).value())) << name;
  EXPECT_EQ(testing::error_of([] { parse_activation("gelo"); }),
            "unknown activation 'gelo'; known are relu, gelu, gelu_tanh, silu, tanh, sigmoid");
}

TEST(Layers, DropoutKeepsTheMeanInTrainingAndEverythingInEvaluation) {
  const Context context = testing::context(1);
  const Dropout layer(0.25);
  const Variable x(kernels::full(context, {8, 16, 64}, 1));
  std::vector<std::int64_t> ids(8);
  std::iota(ids.begin(), ids.end(), 0);
  Forward pass{.training = true, .random = {}, .sample_ids = from_values(context, ids, {8})};
  const std::vector<double> dropped = doubles(layer(x, pass).value());
  std::size_t zeros = 0;
  for (const double value : dropped) {
    if (value == 0) ++zeros;
    else EXPECT_FLOAT_EQ(static_cast<float>(value), 1 / 0.75F);
  }
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(dropped.size()), 0.25, 0.02);
  EXPECT_NE(doubles(layer(x, pass).value()), dropped);  // another call draws another mask
  Forward without_ids{.training = true, .random = {}, .sample_ids = {}};
  EXPECT_NE(testing::error_of([&] { layer(x, without_ids); }).find("sample ids"), std::string::npos);
  EXPECT_EQ(doubles(Dropout(0)(x, without_ids).value()), doubles(x.value()));
  for (const double probability : {-0.1, 1.0}) EXPECT_THROW(Dropout{probability}, Error);
  EXPECT_EQ(doubles(layer(x).value()), doubles(x.value()));
}

TEST(Layers, ParametersAreNamedByTheirPathAndLoadedByName) {
  const auto make = [] { return Sequential(Linear(3, 4), Activation(ActivationKind::tanh), Mlp({4, 5, 2})); };
  const Context context = testing::context(1);
  Sequential one = make(), two = make();
  std::vector<FlatBuffer> first = materialize(one, context, {.seed = 1}),
                          second = materialize(two, context, {.seed = 2});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(one)) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.2.layers.0.weight",
                                      "layers.2.layers.0.bias", "layers.2.layers.1.weight", "layers.2.layers.1.bias"}));
  const Variable x(uniform_tensor(context, {6, 3}, 3));
  EXPECT_NE(doubles(one(x).value()), doubles(two(x).value()));
  load_state(two, second, state_dict(one));
  EXPECT_EQ(doubles(one(x).value()), doubles(two(x).value()));
  EXPECT_EQ(count_parameters(one), 3 * 4 + 4 + 4 * 5 + 5 + 5 * 2 + 2);
  Linear half(3, 4);
  half.weight.set_trainable(false);
  EXPECT_EQ(count_parameters(half), 16);
  EXPECT_EQ(count_parameters(half, true), 4);
}

TEST(Layers, ASparseEmbeddingHasABufferOfWholeRowsAndNoMemoryForAGradient) {
  struct Tables : Module {
    Embedding dense{5, 3}, sparse{50, 3, Initializer::normal(1), true}, frozen{5, 3, Initializer::normal(1), true};
    Tables() { frozen.weight.set_trainable(false); }
    void visit(Visitor& v) override {
      v("dense", dense);
      v("sparse", sparse);
      v("frozen", frozen);
    }
  };
  const Context context = testing::context(1);
  Tables tables;
  for (const int shards : {1, 3, 4})
    for (const FlatBuffer& buffer : lay_out(tables, shards))
      EXPECT_EQ(buffer.padded % (buffer.sparse ? shards * 3 : shards), 0) << buffer.segments[0].name;
  std::vector<FlatBuffer> buffers = materialize(tables, context);
  ASSERT_EQ(buffers.size(), 3U);
  EXPECT_EQ(context.memory()[Purpose::gradient].current, static_cast<std::size_t>(buffers[0].padded) * 4);
  const std::vector<std::int32_t> ids = {7, 49, 7};
  backward(sum(tables.sparse(from_values(context, ids, {3}))));
  EXPECT_EQ(doubles(tables.sparse.weight.variable().row_grad().values()), (std::vector<double>{2, 2, 2, 1, 1, 1}));
  for (FlatBuffer& buffer : buffers) {
    EXPECT_EQ(buffer.sparse, buffer.segments[0].name == "sparse.weight");
    EXPECT_EQ(buffer.gradient.defined(), buffer.segments[0].name == "dense.weight");
    if (!buffer.trainable) continue;
    buffer.zero_grad();
    buffer.complete_gradient();
  }
  EXPECT_EQ(tables.sparse.weight.variable().row_grad().count(), 0);
}

TEST(Layers, AWrongInputIsAnErrorThatShowsTheShapes) {
  const Context context = testing::context(1);
  Linear layer(3, 2);
  EXPECT_THROW(layer(Variable(uniform_tensor(context, {4, 3}, 1))), Error);  // no memory yet
  const std::vector<FlatBuffer> buffers = materialize(layer, context);
  try {
    layer(Variable(uniform_tensor(context, {4, 5}, 1)));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("(4, 5)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace keel
