#pragma once
// What tests of numbers in files share: models and their training, what may lie there, and files in memory.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/runtime/faulty_file.h"

namespace keel::testing {

// Units of other sizes between two uses of a layer of the root's.
struct MixedNet : Module {
  Linear head{kWidth, kWidth};
  std::vector<UnitLayer> layers = std::vector<UnitLayer>(3);
  Variable operator()(const Tensor& x) const {
    const Scope scope(*this);
    Variable y = tanh(head(Variable(x)));
    for (const UnitLayer& layer : layers) y = layer(y);
    return head(y);
  }
  void visit(Visitor& v) override {
    v("head", head);
    v("layers", layers);
  }
};

// Units of hidden matrices and their biases, and a root in which more than half of the numbers are others.
struct HiddenNet : Module {
  Linear entry{kWidth, kWidth}, mix{kWidth, 40};
  struct Unit : Module {
    Linear packed{40, 96}, out{32, 40};
    Unit() { packed.parts = {{"q", 32}, {"k", 16}, {"v", 48}}; }  // whose updates have different scales
    Variable operator()(const Variable& x) const {
      const Scope scope(*this);
      const Variable y = packed(x);
      return out(tanh(add(slice(y, 1, 0, 32), slice(y, 1, 64, 96))));
    }
    void visit(Visitor& v) override {
      v("packed", packed);
      v("out", out);
    }
    bool is_unit() const override { return true; }
  };
  std::vector<Unit> units;
  Linear head{40, 3};
  explicit HiddenNet(std::size_t count = 2) : units(count) { entry.is_head = head.is_head = true; }  // for AdamW
  Variable operator()(const Tensor& x) const {
    const Scope scope(*this);
    Variable y = tanh(mix(entry(Variable(x))));
    for (const Unit& unit : units) y = unit(y);
    return head(y);
  }
  void visit(Visitor& v) override {
    v("entry", entry);
    v("mix", mix);
    v("units", units);
    v("head", head);
  }
};

// More matrices than are in memory at a time, with little of a budget.
struct LongHiddenNet : HiddenNet {
  LongHiddenNet() : HiddenNet(10) {}
};

// Tests of each stage and number of ranks.
class ByStageAndRanks : public ::testing::TestWithParam<std::tuple<int, int>> {
 public:
  int number() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  static std::string case_name(const ::testing::TestParamInfo<ParamType>& info) {
    return concat("stage_", std::get<0>(info.param), "_ranks_", std::get<1>(info.param));
  }
};

struct FileCase {
  std::string name;
  void (*set)(ShardingOptions&);
};

inline const FileCase kFileCases[] = {
    {"states", [](ShardingOptions& s) { s.offload_optimizer = Residence::file; }},
    {"weights", [](ShardingOptions& s) { s.offload_parameters = Residence::file; }},
    {"gradients", [](ShardingOptions& s) { s.offload_gradients = Residence::file; }},
    {"all",
     [](ShardingOptions& s) { s.offload_optimizer = s.offload_parameters = s.offload_gradients = Residence::file; }}};

// Bytes, for the smallest pieces of a unit of 4,352 numbers, or of HiddenNet's root with what it has whole, but not for
// all that they have in files.
inline constexpr std::int64_t kLittle = 60000, kLittleOfF64 = 100000, kLittleOfMatrices = 75000, kMuch = 1 << 30;

inline std::unique_ptr<ScratchFile> in_memory(const std::string&) { return std::make_unique<FaultyFile>(); }

inline ShardedOptions in_dtype(int number, DType dtype, int micro_batches) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(dtype);
  options.micro_batches = micro_batches;
  options.clip = 0.5;
  if (dtype == DType::f16) {
    options.loss_scale = 65536 * 16;  // the first steps are skipped
    options.scaling = LossScaling::dynamic();
  }
  options.scratch_file = in_memory;
  options.sharding.offload_budget = kLittle;
  return options;
}

inline const UpdateSettings kFiledAdamW = AdamSettings{.decoupled = true};

// Numbers of all ranks, one after the other, of weights and state, and what the steps told.
template <class Net>
std::vector<double> trained(int ranks, const ShardedOptions& options, const ElementwiseOptions& optimizer,
                            int steps = 3, std::uint64_t seed = 7) {
  std::vector<std::vector<double>> outcome(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Net net;
    Sharded engine(net, context, comm, make_elementwise("test", optimizer), options);
    std::vector<double> mine;
    for (int step = 0; step < steps; ++step) {
      for (int micro = 0; micro < options.micro_batches; ++micro) {
        const Tensor x =
            rows(context, step, comm, micro, static_cast<int>(options.micro_batches), seed, options.policy.parameter);
        engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro + 1 == options.micro_batches});
      }
      const StepResult result = engine.step(1e-2).get();
      mine.push_back(std::isfinite(result.grad_norm) ? result.grad_norm : -1);  // none equals itself otherwise
      mine.push_back(result.taken ? 1 : 0);
    }
    for (const double each : whole_values(engine)) mine.push_back(each);
    for (const double each : numbers_of(engine.weights())) mine.push_back(each);
    for (const double each : numbers_of(engine.optimizer_state())) mine.push_back(each);
    const std::lock_guard lock(mutex);
    outcome[static_cast<std::size_t>(comm.rank())] = mine;
  });
  std::vector<double> all;
  for (const std::vector<double>& each : outcome) all.insert(all.end(), each.begin(), each.end());
  return all;
}

template <class Net>
std::vector<double> trained(int ranks, const ShardedOptions& options, const UpdateSettings& optimizer, int steps = 3,
                            std::uint64_t seed = 7) {
  return trained<Net>(ranks, options, ElementwiseOptions{.settings = optimizer, .weight_decay = 0.01}, steps, seed);
}

}  // namespace keel::testing
