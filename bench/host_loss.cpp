// What a host in C pays for a loss of its own: a step through capi/keel.h beside the same step in C++ with mse_loss().
// usage: bench_host_loss [samples] [width] [rounds]
//
// Both train one model of three layers on the same f32 numbers, on one thread, in turns. Of each round the ratio of
// both times counts, and of those the median: what slows the machine down slows both.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "keel/autograd/loss.h"
#include "keel/capi/keel.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/layers.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/assembly.h"

namespace {

using namespace keel;

constexpr std::int64_t kInputs = 32, kOutputs = 8;
constexpr int kStepsOfARound = 20;
constexpr double kRate = 1e-3;

void must(keel_status status) {
  if (status == KEEL_OK) return;
  std::fprintf(stderr, "bench_host_loss: %s\n", keel_last_error());
  std::exit(1);
}

int mean_of_squares(int, const keel_view* output, const keel_view* target, const keel_view*, const keel_view* gradient,
                    double* loss, char*, void*) {
  const std::int64_t n = output->shape[0] * output->shape[1];
  const auto* y = static_cast<const float*>(output->memory);
  const auto* wanted = static_cast<const float*>(target->memory);
  auto* slope = static_cast<float*>(gradient->memory);
  const float factor = 2 / static_cast<float>(n);
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float error = y[i] - wanted[i];
    sum += error * error;
    slope[i] = factor * error;
  }
  *loss = static_cast<double>(sum / static_cast<float>(n));
  return 0;
}

std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / 8388608.0F - 1;
  }
  return values;
}

class InC {
 public:
  InC(std::vector<float>& x, std::vector<float>& y, std::int64_t samples, std::int64_t width) {
    const std::int64_t in[] = {samples, kInputs}, out[] = {samples, kOutputs},
                       widths[] = {kInputs, width, width, kOutputs};
    must(keel_settings_create(&settings_));
    must(keel_settings_set(settings_, "threads", "1"));
    must(keel_context_create(settings_, &context_));
    must(keel_array_create(context_, x.data(), KEEL_F32, KEEL_HOST, 2, in, nullptr, &inputs_));
    must(keel_array_create(context_, y.data(), KEEL_F32, KEEL_HOST, 2, out, nullptr, &targets_));
    must(keel_model_create_mlp(context_, nullptr, widths, 4, "tanh", "mse", &model_));
    must(keel_model_loss(model_, mean_of_squares, nullptr));
  }
  ~InC() {
    must(keel_model_destroy(&model_));
    must(keel_array_destroy(&inputs_));
    must(keel_array_destroy(&targets_));
    must(keel_context_destroy(&context_));
    must(keel_settings_destroy(&settings_));
  }
  InC(const InC&) = delete;
  InC& operator=(const InC&) = delete;

  double step() {
    double loss = 0;
    must(keel_train_step(model_, inputs_, targets_, kRate, &loss, nullptr, nullptr));
    return loss;
  }

 private:
  keel_settings* settings_ = nullptr;
  keel_context* context_ = nullptr;
  keel_array *inputs_ = nullptr, *targets_ = nullptr;
  keel_model* model_ = nullptr;
};

class InCpp {
 public:
  InCpp(std::vector<float>& x, std::vector<float>& y, std::int64_t samples, std::int64_t width)
      : context_(Context::create({.threads = 1})),
        config_(parse_config("steps: 1\ndata: {type: addition}", "bench")),
        net_({kInputs, width, width, kOutputs}, ActivationKind::tanh),
        engine_(net_, context_, make_optimizer(config_), engine_options(config_, 1, net_)),
        x_(from_values(context_, x, {samples, kInputs})),
        y_(from_values(context_, y, {samples, kOutputs})),
        samples_(samples) {}

  double step() {
    const Variable loss = mse_loss(net_(x_), y_);
    engine_.backward(loss, {.weight = samples_});
    engine_.step(kRate).get();
    return loss.value().item();
  }

 private:
  Context context_;
  Config config_;
  Mlp net_;
  Sharded engine_;
  Variable x_, y_;
  std::int64_t samples_;
};

template <class Learner>
double milliseconds(Learner& learner, double& loss) {
  double total = 0;
  {
    const Stopwatch watch(total);
    for (int step = 0; step < kStepsOfARound; ++step) loss = learner.step();
  }
  return total / kStepsOfARound;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int at, std::int64_t otherwise) {
    return argc > at ? std::strtoll(argv[at], nullptr, 10) : otherwise;
  };
  const std::int64_t samples = argument(1, 512), width = argument(2, 128), rounds = argument(3, 31);
  if (samples < 1 || width < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: bench_host_loss [samples] [width] [rounds]\n");
    return 2;
  }
  std::vector<float> x = numbers(samples * kInputs), y = numbers(samples * kOutputs);
  InC c(x, y, samples, width);
  InCpp cpp(x, y, samples, width);
  double loss_in_c = 0, loss_in_cpp = 0;
  std::vector<double> of_c, of_cpp, ratios;
  milliseconds(c, loss_in_c), milliseconds(cpp, loss_in_cpp);
  for (std::int64_t round = 0; round < rounds; ++round) {
    of_c.push_back(milliseconds(c, loss_in_c));
    of_cpp.push_back(milliseconds(cpp, loss_in_cpp));
    ratios.push_back(of_c.back() / of_cpp.back());
  }
  std::printf(
      "{\"samples\": %lld, \"width\": %lld, \"rounds\": %lld, \"c_ms\": %.4f, \"cpp_ms\": %.4f, "
      "\"ratio\": %.4f, \"loss_c\": %.9g, \"loss_cpp\": %.9g}\n",
      static_cast<long long>(samples), static_cast<long long>(width), static_cast<long long>(rounds), median(of_c),
      median(of_cpp), median(ratios), loss_in_c, loss_in_cpp);
  return 0;
}
