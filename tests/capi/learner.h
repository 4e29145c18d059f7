#pragma once
// The same training through C and through C++: a model of two layers, and steps on numbers that the seed says.

#include <memory>

#include "keel/autograd/loss.h"
#include "keel/nn/layers.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/checkpoint.h"
#include "tests/capi/handles.h"
#include "tests/support.h"

namespace keel::testing {

inline constexpr std::int64_t kSamples = 8, kInputs = 4, kOutputs = 2;

// A rank's samples of a step, dense: (kSamples, kInputs) and (kSamples, kOutputs).
struct Samples {
  std::vector<float> x, y;
  Samples(int step, int rank) {
    const auto seed = 100 * static_cast<std::uint64_t>(step) + 10 * static_cast<std::uint64_t>(rank);
    for (const double v : uniform(kSamples * kInputs, seed)) x.push_back(static_cast<float>(v));
    for (const double v : uniform(kSamples * kOutputs, seed + 5)) y.push_back(static_cast<float>(v));
  }
};

struct CLearner {
  CContext& context;
  CModel model;

  CLearner(CContext& context, const CSettings& settings) : context(context) {
    const std::int64_t widths[] = {kInputs, 16, kOutputs};
    EXPECT_KEEL(keel_model_create_mlp(context, settings, widths, 3, "tanh", "mse", model.out()));
  }
  double step(int number, int rank = 0) {
    Samples samples(number, rank);
    const CArray x = c_array(context, samples.x.data(), {kSamples, kInputs});
    const CArray y = c_array(context, samples.y.data(), {kSamples, kOutputs});
    double loss = 0;
    int taken = 0;
    EXPECT_KEEL(keel_train_step(model, x, y, 1e-2, &loss, nullptr, &taken));
    EXPECT_EQ(taken, 1);
    return loss;
  }
};

struct CppLearner {
  Communicator& ranks;
  Context context = testing::context(1);
  Mlp net{{kInputs, 16, kOutputs}, ActivationKind::tanh};
  Sharded engine;
  TrainState state;

  CppLearner(Communicator& ranks, const Config& config)
      : ranks(ranks), engine(net, context, ranks, make_optimizer(config), engine_options(config, 1, net)) {
    state.config = to_yaml(config);
  }
  double step(int number, int rank = 0) {
    const Samples samples(number, rank);
    const Variable x(from_values(context, samples.x, {kSamples, kInputs}));
    const Variable y(from_values(context, samples.y, {kSamples, kOutputs}));
    const Variable loss = mse_loss(net(x), y);
    engine.backward(loss, {.weight = kSamples});
    engine.step(1e-2);
    ++state.step;
    return loss.value().item();
  }
  void save(const std::string& folder) { save_checkpoint(folder, engine, ranks, json_of(state)); }
};

}  // namespace keel::testing
