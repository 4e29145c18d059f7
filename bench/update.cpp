// AdamW's update of 124 million fp32 weights (GPT-2's smallest), on request: "step N" on standard input makes N updates
// and answers with their seconds as JSON, as bench/peers/adamw.py does. bench/compare_update.py races the two.
//
// usage: bench_update [threads] [weights]

#include <sys/resource.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/measure.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"
#include "keel/runtime/parallel.h"

namespace keel::bench {
namespace {

void serve(int threads, std::int64_t weights) {
  const Context context = Context::create({.threads = threads});
  const auto numbers = [&](double value) { return kernels::full(context, {weights}, value, DType::f32); };
  UpdateArgs args{};
  args.parameter = numbers(0.02);
  args.gradient = numbers(1e-3);
  args.state = {numbers(0), numbers(0)};
  args.settings = AdamSettings{.decoupled = true};
  args.range.weight_decay = 0.01;
  std::int64_t taken = 0;
  const auto step = [&] {
    args.step = kernels::make_step_state(context, {.steps = ++taken, .taken = 1, .lr = 1e-4});
    kernels::update(args);
  };
  for (int warmup = 0; warmup < 3; ++warmup) step();
  std::string word;
  for (int steps = 0; std::cin >> word && word == "step" && std::cin >> steps;) {
    const double seconds = seconds_of([&] {
      for (int i = 0; i < steps; ++i) step();
    });
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::cout << nlohmann::json{{"steps", steps}, {"seconds", seconds}, {"peak_rss_bytes", usage.ru_maxrss * 1024}}
              << std::endl;
  }
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  keel::bench::serve(argc > 1 ? std::atoi(argv[1]) : keel::default_threads(),
                     argc > 2 ? std::atoll(argv[2]) : 124439808);
}
