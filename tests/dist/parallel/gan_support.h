#pragma once
// What tests of several engines share: a generator and a discriminator of points on a ring, each with its engine.

#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <numbers>
#include <vector>

#include "keel/dist/comm/run_ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel::testing {

inline constexpr std::int64_t kHidden = 24, kPoints = 12;

// Two units between two layers of the root.
struct PointNet : Module {
  PointNet(std::int64_t in, std::int64_t out) : first(in, kHidden), last(kHidden, out) {
    for (int i = 0; i < 2; ++i) units.emplace_back(kHidden);
  }
  Linear first, last;
  std::vector<UnitLayer> units;
  Variable operator()(const Variable& x) const {
    Variable y = tanh(first(x));
    for (const UnitLayer& unit : units) y = unit(y);
    return last(y);
  }
  void visit(Visitor& v) override {
    v("first", first);
    v("units", units);
    v("last", last);
  }
};

// This rank's points of a ring in a micro-batch; the ranks have different numbers of them.
inline Variable ring(const Context& context, const Communicator& comm, int at) {
  std::vector<double> points;
  const std::int64_t count = kPoints + comm.rank();
  for (std::int64_t i = 0; i < count; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>((i * 7 + at * 5 + comm.rank()) % 37) / 37;
    points.insert(points.end(), {std::cos(angle), std::sin(angle)});
  }
  return Variable(tensor_of(context, points, {count, 2}));
}

inline Variable noise(const Context& context, const Communicator& comm, int at) {
  const std::uint64_t seed = 100 * static_cast<std::uint64_t>(at) + static_cast<std::uint64_t>(comm.rank());
  return Variable(uniform_tensor(context, {kPoints + comm.rank(), 3}, seed));
}

inline ShardedOptions in_micros(int number, int micros) {
  ShardedOptions options = stage(number);
  options.micro_batches = micros;
  return options;
}

// Generator and discriminator of one rank. The losses are those of least squares (Mao et al. 2017).
struct Gan {
  Gan(Communicator& ranks, int number_of_generator, int number_of_discriminator, int micros = 1)
      : comm(ranks),
        context(testing::context(1)),
        generator(make_g, context, comm, make_adamw(), in_micros(number_of_generator, micros)),
        discriminator(make_d, context, comm, make_adamw(), in_micros(number_of_discriminator, micros)) {}

  Variable score(const Variable& x) const { return make_d(x); }
  void train_discriminator(int at, bool last = true) {
    const Variable real = ring(context, comm, at);
    const Variable fake = make_g(noise(context, comm, at)).detach();
    discriminator.backward(add(mean(square(shift(score(real), -1))), mean(square(score(fake)))),
                           {.weight = real.dim(0), .last = last});
  }
  Variable generator_loss(int at) const { return mean(square(shift(score(make_g(noise(context, comm, at))), -1))); }
  void train_generator(int at, bool last = true) {
    generator.backward(generator_loss(at), {.weight = kPoints + comm.rank(), .last = last});
  }

  Communicator& comm;
  Context context;
  PointNet make_g{3, 2}, make_d{2, 1};
  Sharded generator, discriminator;
};

// Runs `body` on each rank, and returns the numbers that rank 0 gives back.
inline std::vector<double> of_rank_0(int ranks, const std::function<std::vector<double>(Communicator&)>& body) {
  std::vector<double> outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const std::vector<double> mine = body(comm);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) outcome = mine;
  });
  return outcome;
}

inline void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace keel::testing
