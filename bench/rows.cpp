// Row kernels against the machine's copy: bytes per second of each kernel over those of memcpy.
//
// Every round runs the copy and all kernels in turn, so that a busy machine slows both; the ratio is
// that of the medians. "bytes" counts what a kernel must read and write once. At sizes past the
// cache a ratio near 1 means that the memory, not the arithmetic, is the limit. memcpy may write
// without reading the lines it overwrites; kernels that write what others read next do not.
//
// Usage: bench_rows [rounds] [threads] [part of a kernel's name]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "keel/kernels/embedding.h"
#include "keel/kernels/loss.h"
#include "keel/kernels/norm.h"
#include "keel/kernels/softmax.h"
#include "keel/kernels/update.h"
#include "keel/runtime/parallel.h"

namespace {

using namespace keel;

struct Case {
  std::string name;
  double bytes;     // read and written by one run
  double elements;  // of its largest tensor
  std::function<void()> run;
  std::vector<double> seconds = {};
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

Tensor noise(const Context& context, const Dims& shape, DType dtype) {
  const Tensor tensor = empty(context, shape, dtype);
  visit_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::uint32_t state = 1;
    T* const data = tensor.data<T>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      state = state * 1664525u + 1013904223u;
      data[i] = static_cast<T>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
  });
  return tensor;
}

Case copy_case(const Context& context, std::int64_t bytes) {
  const Tensor from = zeros(context, {bytes}, DType::u8), to = zeros(context, {bytes}, DType::u8);
  return {"copy (memcpy)", 2.0 * static_cast<double>(bytes), static_cast<double>(bytes), [=] {
            const std::int64_t grain = (bytes + context.threads() - 1) / context.threads();
            parallel_for(context, bytes, grain, [&](std::int64_t begin, std::int64_t end) {
              std::memcpy(to.raw() + begin, from.raw() + begin, static_cast<std::size_t>(end - begin));
            });
          }};
}

Case adamw_case(const Context& context, std::int64_t count, DType dtype) {
  AdamWArgs args{};
  args.parameter = noise(context, {count}, dtype);
  if (dtype != DType::f32) args.master = noise(context, {count}, DType::f32);
  args.gradient = noise(context, {count}, dtype);
  args.m = zeros(context, {count});
  args.v = zeros(context, {count});
  args.lr = 1e-3;
  args.beta1 = 0.9;
  args.beta2 = 0.99;
  args.epsilon = 1e-8;
  args.weight_decay = 0.1;
  args.gradient_scale = 1;
  // fp32: reads p, g, m, v and writes p, m, v; with a master copy also writes the parameter.
  const double per_element = dtype == DType::f32 ? 28 : 24 + 2 + 2;
  const double elements = static_cast<double>(count);
  return {concat("adamw ", dtype), per_element * elements, elements, [args]() mutable {
            ++args.step;
            kernels::adamw(args);
          }};
}

Case sgd_case(const Context& context, std::int64_t count) {
  SgdArgs args{};
  args.parameter = noise(context, {count}, DType::f32);
  args.gradient = noise(context, {count}, DType::f32);
  args.momentum_buffer = zeros(context, {count});
  args.lr = 1e-3;
  args.momentum = 0.9;
  args.step = 1;
  args.gradient_scale = 1;
  const double elements = static_cast<double>(count);
  return {"sgd, momentum f32", 20 * elements, elements, [args]() mutable {
            ++args.step;
            kernels::sgd(args);
          }};
}

void add_norm_cases(std::vector<Case>& cases, const Context& context, std::int64_t rows, std::int64_t cols,
                    DType dtype) {
  const Tensor x = noise(context, {rows, cols}, dtype), residual = noise(context, {rows, cols}, dtype);
  const Tensor weight = noise(context, {cols}, dtype), bias = noise(context, {cols}, dtype);
  const double elements = static_cast<double>(x.numel()), size = static_cast<double>(size_of(dtype));
  const std::string suffix = concat(" ", dtype, " x ", cols);
  cases.push_back({"layer norm" + suffix, 2 * size * elements, elements,
                   [=] { kernels::norm(NormKind::layer, x, {}, weight, bias, 1e-5); }});
  cases.push_back({"layer norm + residual" + suffix, 4 * size * elements, elements,
                   [=] { kernels::norm(NormKind::layer, x, residual, weight, bias, 1e-5); }});
  cases.push_back({"rms norm" + suffix, 2 * size * elements, elements,
                   [=] { kernels::norm(NormKind::rms, x, {}, weight, {}, 1e-5); }});
  const kernels::NormResult forward = kernels::norm(NormKind::layer, x, {}, weight, bias, 1e-5);
  NormBackwardArgs args{};
  args.kind = NormKind::layer;
  args.grad_output = residual;
  args.x = x;
  args.weight = weight;
  args.mean = forward.mean;
  args.rstd = forward.rstd;
  args.grad_weight = zeros(context, {cols});
  args.grad_bias = zeros(context, {cols});
  cases.push_back(
      {"layer norm backward" + suffix, 3 * size * elements, elements, [args] { kernels::norm_backward(args); }});
}

void add_row_cases(std::vector<Case>& cases, const Context& context, std::int64_t rows, std::int64_t cols,
                   DType dtype) {
  const Tensor logits = noise(context, {rows, cols}, dtype);
  const Tensor targets = zeros(context, {rows}, DType::i64);
  const double elements = static_cast<double>(logits.numel()), size = static_cast<double>(size_of(dtype));
  const std::string suffix = concat(" ", dtype, " x ", cols);
  cases.push_back({"softmax" + suffix, 2 * size * elements, elements, [=] { kernels::softmax(logits); }});
  cases.push_back(
      {"cross-entropy" + suffix, size * elements, elements, [=] { kernels::cross_entropy(logits, targets); }});
  cases.push_back({"cross-entropy, gradient over logits" + suffix, 2 * size * elements, elements,
                   [=] { kernels::cross_entropy(logits, targets, -100, 0, kernels::LogitsGradient::over_logits); }});
}

void add_embedding_cases(std::vector<Case>& cases, const Context& context) {
  constexpr std::int64_t kVocabulary = 50257, kWidth = 768, kCount = 16384;
  const Tensor table = noise(context, {kVocabulary, kWidth}, DType::f32);
  const Tensor ids = empty(context, {kCount}, DType::i64);
  for (std::int64_t i = 0; i < kCount; ++i) ids.data<std::int64_t>()[i] = i * 7919 % kVocabulary;
  const Tensor grad = noise(context, {kCount, kWidth}, DType::f32);
  const double elements = static_cast<double>(grad.numel());
  cases.push_back({"embedding f32", 8 * elements, elements, [=] { kernels::embedding(table, ids); }});
  cases.push_back({"embedding backward, add f32", 12 * elements, elements,
                   [=] { kernels::embedding_backward(grad, ids, table, true); }});
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  ContextOptions options;
  options.threads = argc > 2 ? std::atoi(argv[2]) : 0;
  const Context context = Context::create(options);

  constexpr std::int64_t kFlat = std::int64_t{1} << 24;
  std::vector<Case> cases;
  cases.push_back(copy_case(context, std::int64_t{1} << 27));
  cases.push_back(adamw_case(context, kFlat, DType::f32));
  cases.push_back(adamw_case(context, kFlat, DType::bf16));
  cases.push_back(sgd_case(context, kFlat));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor flat = noise(context, {4 * kFlat / static_cast<std::int64_t>(size_of(dtype))}, dtype);
    cases.push_back({concat("sum of squares ", dtype), static_cast<double>(flat.bytes()),
                     static_cast<double>(flat.numel()), [flat] { kernels::sum_of_squares(flat); }});
    cases.push_back({concat("all finite ", dtype), static_cast<double>(flat.bytes()), static_cast<double>(flat.numel()),
                     [flat] { kernels::all_finite(flat); }});
    add_norm_cases(cases, context, 32768, 768, dtype);
    add_row_cases(cases, context, 1024, 50257, dtype);
    add_row_cases(cases, context, 1 << 18, 65, dtype);
  }
  add_embedding_cases(cases, context);

  if (argc > 3)
    cases.erase(std::remove_if(cases.begin() + 1, cases.end(),
                               [&](const Case& one) { return one.name.find(argv[3]) == std::string::npos; }),
                cases.end());

  for (int round = -1; round < rounds; ++round) {
    for (Case& one : cases) {
      const auto start = std::chrono::steady_clock::now();
      one.run();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (round >= 0) one.seconds.push_back(taken.count());
    }
  }
  const double copy_rate = cases.front().bytes / median(cases.front().seconds);
  std::printf("threads %d, rounds %d, copy %.2f GB/s (read + written)\n", context.threads(), rounds, copy_rate * 1e-9);
  std::printf("%-46s %10s %14s\n", "kernel", "of copy", "ns / element");
  for (const Case& one : cases) {
    const double seconds = median(one.seconds);
    std::printf("%-46s %9.0f%% %14.3f\n", one.name.c_str(), 100 * one.bytes / seconds / copy_rate,
                1e9 * seconds / one.elements);
  }
  return 0;
}
