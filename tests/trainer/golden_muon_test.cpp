// Fifty steps of Muon, as configurations name it, against PyTorch's: the golden numbers of
// tests/golden/muon.safetensors.

#include <gtest/gtest.h>

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

struct MuonCase {
  std::string name, options;
};
const MuonCase kMuonCases[] = {
    {"match_rms_adamw", "lr: 0.01, type: muon, products: fp32"},
    {"original",
     "lr: 0.02, type: Muon, products: fp32, adjust_lr_fn: original, momentum: 0.9, nesterov: false, ns_steps: 3, "
     "adamw_lr_factor: 0.1"},
};
constexpr std::int64_t kStoredMuonSteps[] = {1, 2, 7, 50};  // steps whose weights the file holds
const char* const kMuonNames[] = {"qkv", "wide", "tall", "free", "still", "head", "norm"};

// The parameters of the file as those of a model: layers of which one is three, a head, and a vector.
struct MuonNet : Module {
  Linear qkv{8, 16, false}, wide{10, 6, false}, tall{6, 10, false}, free{7, 5, false}, still{4, 3, false},
      head{8, 4, false};
  RMSNorm norm{9};
  MuonNet() {
    qkv.parts = {{"q", 8}, {"k", 4}, {"v", 4}};
    head.is_head = true;
  }
  void visit(Visitor& v) override {
    v("qkv", qkv);
    v("wide", wide);
    v("tall", tall);
    v("free", free);
    v("still", still);
    v("head", head);
    v("norm", norm);
  }
};

class MuonGolden : public ::testing::Test {
 protected:
  Tensor tensor(const std::string& name, DType dtype) const {
    return kernels::cast(file_.tensor(name, context_), dtype);
  }
  // A loss whose gradients are those of the file.
  Variable loss_of(MuonNet& net, std::int64_t step, DType dtype) const {
    Variable loss;
    for_each_parameter(net, [&](const std::string& path, Parameter& parameter) {
      const std::string name = path.substr(0, path.find('.'));
      const Tensor gradient = name == "still" ? zeros(context_, parameter.shape(), dtype)
                                              : tensor("problem/" + name + "_gradients", dtype).select(0, step);
      const Variable term = sum(mul(parameter, Variable(gradient)));
      loss = loss.defined() ? add(loss, term) : term;
    });
    return loss;
  }

  Context context_ = testing::context(1);
  SafetensorsFile file_{KEEL_SOURCE_DIR "/tests/golden/muon.safetensors"};
};

TEST_F(MuonGolden, FiftyStepsAreThoseOfPyTorchsMuonAndAdamW) {
  for (const MuonCase& each : kMuonCases)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Config config =
          parse_config("{steps: 50, data: {type: addition}, optimizer: {" + each.options +
                           ", groups: [{match: free, weight_decay: 0, lr_factor: 0.5}]}, scheduler: {type: LinearLR, "
                           "start_factor: 1, end_factor: 0.5, total_iters: 50}}",
                       "golden.yaml");
      MuonNet net;
      ShardedOptions options;
      options.policy = PrecisionPolicy::of(dtype);
      options.groups = group_by_name(config.optimizer.groups);
      Sharded engine(net, context_, make_optimizer(config), options);
      for (const TensorPart& part : engine.weights())
        kernels::copy_into(part.values, tensor("problem/" + part.name.substr(0, part.name.find('.')), dtype).flatten());
      engine.adopt_weights();
      const StepCurves curves = make_curves(config, context_);
      std::size_t stored = 0;
      for (std::int64_t step = 0; step < 50; ++step) {
        engine.backward(loss_of(net, step, dtype));
        ASSERT_TRUE(engine.step(curves).get().taken);
        if (step + 1 != kStoredMuonSteps[stored]) continue;
        for (const char* name : kMuonNames) {
          const Tensor expected =
              tensor(concat(each.name, '/', name), DType::f64).select(0, static_cast<std::int64_t>(stored));
          for (const TensorPart& part : engine.weights())
            if (part.name == concat(name, ".weight")) {
              EXPECT_LT(relative_error(doubles(part.values), doubles(expected)), dtype == DType::f32 ? 1e-5 : 5e-7)
                  << each.name << '/' << name << " in " << dtype << " after step " << step + 1;
            }
        }
        ++stored;
      }
    }
}

}  // namespace
}  // namespace keel
