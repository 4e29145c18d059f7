// The last layer of a language model with its loss, forward and backward: linear_cross_entropy() beside linear() and
// cross_entropy(), seconds and the most memory that each asks for beside weight and gradient.
//
// usage: bench_last_layer ROWS WIDTH VOCABULARY f32|bf16 THREADS [ROUNDS]
//
// Prints for each the median of ROUNDS (3) rounds in turn, the least time of the processor, and the peak in MB.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "bench/measure.h"
#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"

namespace keel::bench {
namespace {

// Between -1 and 1.
Tensor numbers(const Context& context, const Dims& shape, DType dtype) {
  const Tensor made = empty(context, shape);
  float* const values = made.data<float>();
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < made.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1;
  }
  return kernels::cast(made, dtype);
}

struct Measured {
  std::vector<double> seconds;
  double processor = 1e9, peak = 0, loss = 0;
};

void print(const char* name, const Measured& measured) {
  std::printf("%-22s %8.3f s  processor %8.3f s  peak %8.1f MB  loss %.5f\n", name, median(measured.seconds),
              measured.processor, measured.peak / 1e6, measured.loss);
  std::fflush(stdout);
}

int race(int count, char** words) {
  if (count < 6) {
    std::fputs("usage: bench_last_layer ROWS WIDTH VOCABULARY f32|bf16 THREADS [ROUNDS]\n", stderr);
    return 2;
  }
  const std::int64_t rows = std::atoll(words[1]), width = std::atoll(words[2]), vocabulary = std::atoll(words[3]);
  const DType dtype = std::string(words[4]) == "bf16" ? DType::bf16 : DType::f32;
  const int rounds = count > 6 ? std::atoi(words[6]) : 3;
  ContextOptions options;
  options.threads = std::atoi(words[5]);
  const Context context = Context::create(options);
  const Variable hidden(numbers(context, {rows, width}, dtype), true);
  const Variable weight(numbers(context, {vocabulary, width}, dtype), true);
  // As an engine has it: a buffer in fp32.
  weight.leaf()->grad = zeros(context, weight.shape());
  weight.leaf()->assigned = true;
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < rows; ++row) targets.push_back(row * 7919 % vocabulary);
  const Tensor wanted = from_values(context, targets, {rows});

  const auto measure = [&](Measured& measured, const std::function<Variable()>& forward) {
    hidden.zero_grad();
    weight.zero_grad();
    const std::size_t before = context.memory().total.current;
    context.allocator().reset_peaks();
    const std::clock_t start = std::clock();
    measured.seconds.push_back(seconds_of([&] {
      const Variable loss = forward();
      backward(loss);
      measured.loss = loss.value().item();
    }));
    measured.processor =
        std::min(measured.processor, static_cast<double>(std::clock() - start) / double{CLOCKS_PER_SEC});
    measured.peak = static_cast<double>(context.memory().total.peak - before);
  };
  Measured blocks, whole;
  for (int round = 0; round < rounds; ++round) {
    measure(blocks, [&] { return linear_cross_entropy(hidden, weight, {}, wanted).loss; });
    measure(whole, [&] { return cross_entropy(linear(hidden, weight, {}), wanted, {.overwrite_logits = true}).loss; });
  }
  std::printf("%lld rows, width %lld, vocabulary %lld, %s, %s threads; logits %.1f MB\n", static_cast<long long>(rows),
              static_cast<long long>(width), static_cast<long long>(vocabulary), words[4], words[5],
              static_cast<double>(rows * vocabulary) * static_cast<double>(size_of(dtype)) / 1e6);
  print("linear_cross_entropy", blocks);
  print("linear, cross_entropy", whole);
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int count, char** words) {
  try {
    return keel::bench::race(count, words);
  } catch (const keel::Error& error) {
    std::fprintf(stderr, "bench_last_layer: %s\n", error.what());
    return 1;
  }
}
