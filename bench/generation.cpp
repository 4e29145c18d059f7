// Tokens from a GPT-2 of random weights, on request: "step N" on standard input continues the prompts by N tokens,
// greedily, and answers with the seconds as JSON, as bench/peers/generation.py does. bench/compare_generation.py races
// the two.
//
// usage: bench_generation fp32|bf16 BATCH PROMPT THREADS [LAYERS]     PROMPT: tokens of each prompt

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "keel/models/generation.h"
#include "keel/models/gpt.h"
#include "keel/nn/flat_buffer.h"

namespace keel::bench {
namespace {

int serve(const std::string& dtype, std::int64_t batch, std::int64_t prompt, int threads, int layers) {
  ContextOptions options;
  options.threads = threads;
  const Context context = Context::create(options);
  Gpt model(GptOptions{.layers = layers});
  const DType numbers = dtype == "bf16" ? DType::bf16 : DType::f32;
  const std::vector<FlatBuffer> buffers =
      materialize(model, context, {.policy = {.parameter = numbers, .keeps_master = false}});
  std::vector<std::vector<std::int64_t>> prompts(static_cast<std::size_t>(batch));
  for (std::int64_t row = 0; row < batch; ++row)
    for (std::int64_t i = 0; i < prompt; ++i) prompts[static_cast<std::size_t>(row)].push_back((row + i * i) % 50000);
  std::string word;
  for (std::int64_t steps = 0; std::cin >> word && word == "step" && std::cin >> steps;) {
    std::int64_t tokens = 0;
    const double seconds = seconds_of([&] {
      generate_batch(model, prompts, {.tokens = steps, .temperature = 0}, [&](std::size_t, std::int64_t) {
        ++tokens;
        return true;
      });
    });
    std::cout << nlohmann::json{{"steps", steps}, {"seconds", seconds}, {"tokens", tokens}} << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 5 || argc > 6) {
    std::cerr << "usage: bench_generation fp32|bf16 BATCH PROMPT THREADS [LAYERS]\n";
    return 2;
  }
  return keel::bench::serve(argv[1], std::stoll(argv[2]), std::stoll(argv[3]), std::stoi(argv[4]),
                            argc == 6 ? std::stoi(argv[5]) : 12);
}
