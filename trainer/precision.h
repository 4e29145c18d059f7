#pragma once
// The choice of `strategy: auto`: the numbers that this processor multiplies fastest.

#include <functional>
#include <optional>
#include <string>

#include "keel/nn/module.h"
#include "keel/runtime/context.h"
#include "keel/trainer/config.h"

namespace keel {

class Communicator;
class TrainObserver;
struct Checkpoint;

struct PrecisionChoice {
  Strategy::Precision precision = Strategy::Precision::fp32;
  std::string reason;  // one line
};

// The inner extent of most products with the model's matrices, by their numbers; 1 where it has none.
std::int64_t inner_extent(Module& model);

// A processor without instructions for bf16 computes in fp32. One that has them, and a GPU, is asked: matrices of a
// model of this width are multiplied in both, on one thread, in turns, for 50 to 500 ms. The best of each counts, since
// another program makes a product slower and never faster. bf16 is chosen where it is at least a quarter faster: its
// rounding should buy something.
PrecisionChoice choose_precision(const Context& context, std::int64_t width);

// What a run computes in: as the configuration says, or else as the checkpoint that it goes on from was computed; else
// the first rank chooses, for all, and says why. A probe may come out differently the next time, and on another rank.
// Every rank calls it.
Strategy::Precision decide_precision(const Config& config, const Context& context, Module& model,
                                     const std::optional<Checkpoint>& resume, TrainObserver& observer,
                                     Communicator& ranks);

// Seconds of a product in fp32, and of the same one in bf16 right after it.
struct ProbeRound {
  double fp32 = 0, bf16 = 0;
};
// The best of many rounds: until neither has become better for 20 of them, and for so many seconds at least and at
// most, by the products' own time.
ProbeRound best_round(const std::function<ProbeRound()>& probe, double least = 0.05, double most = 0.5);

}  // namespace keel
