#pragma once
// What tests of sharding share: a small model in units, its data, and the numbers of all ranks.

#include "keel/autograd/functions.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/layers.h"
#include "tests/support.h"

namespace keel::testing {

inline constexpr std::int64_t kWidth = 64, kBatch = 48;

// One shard unit: 64 to 65 numbers, of which 64 go on, so that no unit fills its shards; or another width.
struct UnitLayer : Module {
  explicit UnitLayer(std::int64_t numbers = kWidth) : width(numbers), linear(numbers, numbers + 1) {}
  std::int64_t width;
  Linear linear;
  Variable operator()(const Variable& x) const {
    const Scope scope(*this);
    return tanh(slice(linear(x), 1, 0, width));
  }
  void visit(Visitor& v) override { v("linear", linear); }
  bool is_unit() const override { return true; }
};

// The fixture f of the design: four such layers.
struct UnitNet : Module {
  explicit UnitNet(std::int64_t width = kWidth, int count = 4) {
    for (int i = 0; i < count; ++i) layers.emplace_back(width);
  }
  std::vector<UnitLayer> layers;
  Variable operator()(const Tensor& x) const {
    Variable y(x);
    for (const UnitLayer& layer : layers) y = layer(y);
    return y;
  }
  void visit(Visitor& v) override { v("layers", layers); }
};

// The fixture F of the design: four units of 1,024 by 1,024 numbers and their biases.
inline constexpr std::int64_t kLarge = 1024;

struct LargeNet : Module {
  struct Layer : Module {
    Linear linear{kLarge, kLarge};
    Variable operator()(const Variable& x) const {
      const Scope scope(*this);
      return tanh(linear(x));
    }
    void visit(Visitor& v) override { v("linear", linear); }
    bool is_unit() const override { return true; }
  };
  std::vector<Layer> layers = std::vector<Layer>(4);
  Variable operator()(const Tensor& x) const {
    Variable y(x);
    for (const Layer& layer : layers) y = layer(y);
    return y;
  }
  void visit(Visitor& v) override { v("layers", layers); }
};

// The rows of a global batch that one rank works on in a micro-batch.
inline Tensor rows(const Context& context, int step, const Communicator& comm, int micro, int micros,
                   std::uint64_t seed, DType dtype) {
  const Tensor all = uniform_tensor(context, {kBatch, kWidth}, seed + static_cast<std::uint64_t>(step), dtype);
  const Span mine = part({0, kBatch}, comm.size(), comm.rank());
  const Span span = part(mine, micros, micro);
  return all.slice(0, span.begin, span.end);
}

inline ShardedOptions stage(int number) {
  ShardedOptions options;
  options.sharding.stage = number;
  return options;
}

inline ShardedOptions each_backward(int number) {
  ShardedOptions options = stage(number);
  options.sharding.accumulation = Accumulation::each_backward;
  return options;
}

// All numbers of the model, on every rank.
inline std::vector<double> whole_values(Sharded& engine) {
  std::vector<double> all;
  for (const auto& unit : engine.units())
    for (const Segment& segment : unit->layout().segments)
      for (const double value : doubles(segment.parameter->variable.value())) all.push_back(value);
  engine.release_weights();
  return all;
}

// The numbers of all parts that this rank has.
inline std::vector<double> numbers_of(const TensorParts& parts) {
  std::vector<double> all;
  for (const TensorPart& part : parts)
    if (part.numel() > 0)
      for (const double value : doubles(part.values)) all.push_back(value);
  return all;
}

}  // namespace keel::testing
