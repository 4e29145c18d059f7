#pragma once
// What tests of virtual ranks share: a model with dropout, and a training of which a rank computes some in turn.

#include "keel/dist/comm/exchange.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel::testing {

// Units whose masks follow from the samples.
struct DroppingNet : UnitNet {
  DroppingNet() : UnitNet(kWidth, 3) {}
  Variable operator()(const Tensor& x, const Tensor& sample_ids, int step) const {
    Variable y(x);
    for (std::size_t i = 0; i < layers.size(); ++i)
      y = view(dropout(view(layers[i](y), {x.dim(0), 1, kWidth}), 0.2,
                       {7, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(i)}, sample_ids),
               x.shape());
    return y;
  }
};

// Of so many virtual ranks; shares that differ by a row.
inline constexpr std::int64_t kDealtRows = 44;

inline ShardedOptions of_virtual_ranks(int number, int virtual_ranks, int micros, DType dtype) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(dtype);
  options.micro_batches = micros;
  options.clip = 0.05;
  options.sharding.virtual_ranks = virtual_ranks;
  return options;
}

// The rows of a micro-batch of one virtual rank.
inline Span dealt(const ShardedOptions& options, int virtual_rank, std::int64_t micro) {
  const Span all{0, kDealtRows}, mine = part(all, options.sharding.virtual_ranks, virtual_rank);
  return part(mine, static_cast<int>(options.micro_batches), static_cast<int>(micro));
}

inline Variable loss_of(const DroppingNet& net, const Sharded& engine, int step, Span span) {
  const Context& context = engine.context();
  const Tensor ids = kernels::arange(context, step * kDealtRows + span.begin, span.count());
  const Tensor all = uniform_tensor(context, {kDealtRows, kWidth}, 100 + static_cast<std::uint64_t>(step),
                                    engine.options().policy.parameter);
  return mean(square(net(all.slice(0, span.begin, span.end), ids, step)));
}

// Backward passes of a step, of one virtual rank after the other.
inline void add_gradients(Sharded& engine, const DroppingNet& net, int step) {
  const ShardedOptions& options = engine.options();
  for (int i = 0; i < engine.virtual_ranks(); ++i)
    for (std::int64_t micro = 0; micro < options.micro_batches; ++micro) {
      const Span span = dealt(options, engine.rank() * engine.virtual_ranks() + i, micro);
      engine.backward(loss_of(net, engine, step, span),
                      {.weight = span.count(), .last = micro + 1 == options.micro_batches});
    }
}

// The bits of all ranks: what the last step has told, and of weights and state.
inline constexpr std::size_t kBitsOfWeights = 4;  // of these, those before the state's
inline std::vector<double> bits_of(Sharded& engine, Communicator& ranks, const StepResult& last) {
  std::vector<double> bits = {last.grad_norm, last.weight};
  for (const TensorParts& parts : {engine.weights(), engine.optimizer_state()}) {
    std::uint64_t sum = 0;
    for (const std::uint64_t theirs : gather_values(ranks, engine.holds_parts() ? fingerprint(parts) : 0))
      sum += theirs;
    bits.push_back(static_cast<double>(sum >> 32));
    bits.push_back(static_cast<double>(sum & 0xffffffff));
  }
  return bits;
}

// The bits at the end, and behind them the numbers of the model.
inline std::vector<double> trained_in_turn(Communicator& ranks, std::unique_ptr<const Optimizer> optimizer,
                                           const ShardedOptions& options, int steps = 3) {
  const Context context = testing::context(1);
  DroppingNet net;
  Sharded engine(net, context, ranks, std::move(optimizer), options);
  StepResult result;
  for (int step = 0; step < steps; ++step) {
    add_gradients(engine, net, step);
    result = engine.step(1e-2).get();
    if (!result.taken) return {};
  }
  std::vector<double> bits = bits_of(engine, ranks, result);
  const std::vector<double> values = whole_values(engine);
  bits.insert(bits.end(), values.begin(), values.end());
  return bits;
}

}  // namespace keel::testing
