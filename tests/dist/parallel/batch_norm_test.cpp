// Batch norm in the engine against steps of PyTorch, in double precision.

#include "keel/nn/batch_norm.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "keel/autograd/functions.h"
#include "keel/dist/parallel/sharded.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;
using Numbers = std::vector<double>;

TEST(BatchNorm, TakesTheStepsOfPyTorch) {
  std::ifstream file(KEEL_SOURCE_DIR "/tests/golden/batch_norm.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 4u);
  const Context context = testing::context(1);
  const auto expect_near = [](const Numbers& mine, const nlohmann::json& theirs, double tolerance, const auto& what) {
    EXPECT_LT(relative_error(mine, theirs.get<Numbers>()), tolerance) << what;
  };
  for (const auto& [name, each] : golden.items()) {
    Dims shape;
    for (const std::int64_t extent : each["shape"]) shape.push_back(extent);
    const nlohmann::json& given = each["options"];
    BatchNorm layer(shape.back(), {.epsilon = given.value("eps", 1e-5),
                                   .momentum = given.value("momentum", 0.1),
                                   .affine = given.value("affine", true)});
    // A layer without parameters cannot be trained alone.
    Linear other(1, 1);
    struct Pair : Module {
      BatchNorm& norm;
      Linear& other;
      Pair(BatchNorm& a, Linear& b) : norm(a), other(b) {}
      void visit(Visitor& v) override {
        v("norm", norm);
        v("other", other);
      }
    } model(layer, other);
    Sharded engine(model, context, make_sgd(), {.policy = PrecisionPolicy::of(DType::f64)});
    const auto tensor = [&](const nlohmann::json& numbers) {
      return from_values(context, numbers.get<Numbers>(), shape);
    };
    for (const nlohmann::json& step : each["steps"]) {
      Variable x(tensor(step["x"]), true);
      Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
      const Variable y = layer(x, pass);
      expect_near(doubles(y.value()), step["y"], 1e-12, name);
      const Variable loss = mse_loss(y, Variable(tensor(step["target"])));
      const Variable nothing = scale(sum(other.weight), 0);
      engine.backward(add(loss, view(nothing, loss.value().shape())), {.weight = 1});
      expect_near(doubles(x.grad()), step["x_gradient"], 1e-10, name);
      if (layer.weight.defined()) {
        expect_near(doubles(layer.weight.grad()), step["weight_gradient"], 1e-10, name);
        expect_near(doubles(layer.bias.grad()), step["bias_gradient"], 1e-10, name);
      }
      EXPECT_TRUE(engine.step(0.5).get().taken);
      if (layer.weight.defined()) {
        expect_near(doubles(layer.weight.value()), step["weight"], 1e-10, name);
        expect_near(doubles(layer.bias.value()), step["bias"], 1e-10, name);
      }
      expect_near(doubles(layer.running_mean.value()), step["running_mean"], 1e-6, name);
      expect_near(doubles(layer.running_var.value()), step["running_var"], 1e-6, name);
    }
    const Tensor last = tensor(each["steps"].back()["x"]);
    expect_near(doubles(layer(Variable(last)).value()), each["evaluated"], 1e-6, name);
  }
}

}  // namespace
}  // namespace keel
