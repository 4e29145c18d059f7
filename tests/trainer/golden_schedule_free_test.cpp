// Fifty steps of schedule-free AdamW, as configurations name it, against the package schedulefree: the golden numbers
// of tests/golden/schedule_free.safetensors.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/autograd/functions.h"
#include "keel/data/safetensors.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/layers.h"
#include "keel/optim/groups.h"
#include "keel/trainer/assembly.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

struct ScheduleFreeCase {
  std::string name, options;
  double lr;
  int warmup;
};
const ScheduleFreeCase kScheduleFreeCases[] = {
    {"standard", "type: ScheduleFreeAdamW", 1e-2, 5},
    {"decay", "type: schedule_free_adamw, betas: [0.95, 0.99], weight_decay: 0.1", 1e-2, 10},
    {"powers", "type: AdamWScheduleFree, weight_decay: 0.1, r: 1.5, weight_lr_power: 0.5, eps: 1e-3", 2e-2, 3},
};
constexpr std::int64_t kStoredAverages[] = {1, 2, 7, 50};  // steps whose weights the file holds

struct ScheduleFreeNet : Module {
  Linear decayed{5, 4, false}, free{7, 3, false}, still{4, 3, false};
  void visit(Visitor& v) override {
    v("decayed", decayed);
    v("free", free);
    v("still", still);
  }
};

std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.find('.')); }

class ScheduleFreeGolden : public ::testing::Test {
 protected:
  Tensor tensor(const std::string& name, DType dtype) const {
    return kernels::cast(file_.tensor(name, context_), dtype);
  }
  std::vector<double> stored(const std::string& name, std::size_t at) const {
    return doubles(tensor(name, DType::f64).select(0, static_cast<std::int64_t>(at)));
  }
  // A loss whose gradients are those of the file.
  Variable loss_of(ScheduleFreeNet& net, std::int64_t step, DType dtype) const {
    Variable loss;
    for_each_parameter(net, [&](const std::string& path, Parameter& parameter) {
      const Tensor gradient = layer_of(path) == "still"
                                  ? zeros(context_, parameter.shape(), dtype)
                                  : tensor("problem/" + layer_of(path) + "_gradients", dtype).select(0, step);
      const Variable term = sum(mul(parameter, Variable(gradient)));
      loss = loss.defined() ? add(loss, term) : term;
    });
    return loss;
  }
  // What the model computes with, and what the engine calls its weights.
  void expect_stored(ScheduleFreeNet& net, Sharded& engine, const std::string& name, std::size_t at, double bound) {
    const auto expect_values = [&](const char* what) {
      for_each_parameter(net, [&](const std::string& path, Parameter& parameter) {
        EXPECT_LT(relative_error(doubles(parameter.value()), stored(concat(name, '/', layer_of(path), what), at)),
                  bound)
            << name << ' ' << path << what << at;
      });
    };
    expect_values("_trained");
    for (const TensorPart& part : engine.weights())
      EXPECT_LT(relative_error(doubles(part.values), stored(concat(name, '/', layer_of(part.name), "_weights"), at)),
                bound)
          << name << ' ' << part.name << at;
    engine.use_averages(true);
    expect_values("_weights");
    engine.use_averages(false);
    expect_values("_trained");
  }

  Context context_ = testing::context(1);
  SafetensorsFile file_{KEEL_SOURCE_DIR "/tests/golden/schedule_free.safetensors"};
};

TEST_F(ScheduleFreeGolden, FiftyStepsAreThoseOfThePackage) {
  for (const ScheduleFreeCase& each : kScheduleFreeCases)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Config config = parse_config("{steps: 50, data: {type: addition}, optimizer: {" + each.options +
                                             ", groups: [{match: free, weight_decay: 0, lr_factor: 0.5}]}}",
                                         "golden.yaml");
      ScheduleFreeNet net;
      ShardedOptions options;
      options.policy = PrecisionPolicy::of(dtype);
      options.groups = group_by_name(config.optimizer.groups);
      Sharded engine(net, context_, make_optimizer(config), options);
      for (const TensorPart& part : engine.weights())
        kernels::copy_into(part.values, tensor("problem/" + layer_of(part.name), dtype).flatten());
      engine.adopt_weights();
      std::size_t at = 0;
      for (int step = 1; step <= 50; ++step) {
        engine.backward(loss_of(net, step - 1, dtype));
        ASSERT_TRUE(engine.step(each.lr * std::min(1.0, static_cast<double>(step) / each.warmup)).get().taken);
        if (step != kStoredAverages[at]) continue;
        expect_stored(net, engine, each.name, at++, dtype == DType::f32 ? 1e-6 : 1e-7);
      }
      EXPECT_EQ(at, std::size(kStoredAverages));
    }
}

}  // namespace
}  // namespace keel
