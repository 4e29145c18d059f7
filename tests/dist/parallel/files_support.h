#pragma once
// What tests of numbers in files share: a model, what may lie there, and files in memory.

#include <memory>
#include <string>

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

// Bytes, for the smallest pieces of a unit of 4,352 numbers, but not for all that it has in files.
inline constexpr std::int64_t kLittle = 60000, kLittleOfF64 = 100000, kMuch = 1 << 30;

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

}  // namespace keel::testing
