#include "keel/trainer/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "keel/dist/comm/exchange.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/runtime/processor.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/progress.h"

namespace keel {
namespace {

constexpr std::int64_t kProbeRows = 256;
constexpr int kCalmRounds = 20;
constexpr double kWorthIt = 1.25;

// Products x (rows, width) times w (width, 4 width) in one number type.
class Products {
 public:
  Products(const Context& context, DType dtype, std::int64_t width)
      : x_(zeros(context, {kProbeRows, width}, dtype, Purpose::workspace)),
        w_(zeros(context, {width, 4 * width}, dtype, Purpose::workspace)),
        out_(empty(context, {kProbeRows, 4 * width}, dtype, Purpose::workspace)) {
    seconds_of_one();  // warms up
  }
  double seconds_of_one() {
    const double start = seconds_now();
    kernels::matmul(x_, w_, {.into = out_});
    out_.context().synchronize();
    return seconds_now() - start;
  }

 private:
  Tensor x_, w_, out_;
};

}  // namespace

std::int64_t inner_extent(Module& model) {
  std::map<std::int64_t, std::int64_t> numbers;  // by inner extent
  for_each_parameter(model, [&](const std::string&, Parameter& parameter) {
    if (const Dims& shape = parameter.shape(); shape.size() == 2) numbers[shape[1]] += shape[0] * shape[1];
  });
  const auto most = std::max_element(numbers.begin(), numbers.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == numbers.end() ? 1 : most->first;
}

ProbeRound best_round(const std::function<ProbeRound()>& probe, double least, double most) {
  constexpr double kBetter = 0.98;
  ProbeRound best{std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
  int calm = 0;
  for (double spent = 0; spent < most && (spent < least || calm < kCalmRounds); ++calm) {
    const ProbeRound round = probe();
    if (round.fp32 < kBetter * best.fp32 || round.bf16 < kBetter * best.bf16) calm = 0;
    best = {std::min(best.fp32, round.fp32), std::min(best.bf16, round.bf16)};
    spent += round.fp32 + round.bf16;
  }
  return best;
}

Strategy::Precision decide_precision(const Config& config, const Context& context, Module& model,
                                     const std::optional<Checkpoint>& resume, TrainObserver& observer,
                                     Communicator& ranks) {
  Strategy::Precision precision = config.strategy.precision;
  if (precision == Strategy::Precision::automatic && resume)
    precision = parse_config(config.keys, resume->state.config, resume->path).strategy.precision;
  if (precision != Strategy::Precision::automatic) return precision;
  const PrecisionChoice choice = choose_precision(context, inner_extent(model));
  if (ranks.rank() == 0) observer.on_message(LogLevel::info, choice.reason);
  return gather_values(ranks, choice.precision).front();
}

PrecisionChoice choose_precision(const Context& context, std::int64_t width) {
  const DeviceType type = context.device().type;
  if (type == DeviceType::emulated)
    return {Strategy::Precision::fp32, "strategy auto: fp32; an emulated device has no speed to compare"};
  if (type == DeviceType::cpu && !multiplies_bf16())
    return {Strategy::Precision::fp32,
            "strategy auto: fp32; this processor has no instructions for bf16 (AVX-512BF16 or AMX-BF16)"};
  // Threads would wait for the one whose core another program holds.
  const Context prober =
      type == DeviceType::cpu ? Context::create({.threads = 1, .kernels = context.kernel_choice()}) : context;
  const std::int64_t probed = std::clamp<std::int64_t>(width, 64, 1024);
  Products wide(prober, DType::f32, probed), narrow(prober, DType::bf16, probed);
  const ProbeRound best = best_round([&] { return ProbeRound{wide.seconds_of_one(), narrow.seconds_of_one()}; });
  const double operations = 2e-9 * kProbeRows * static_cast<double>(probed * 4 * probed);
  const bool faster = best.fp32 >= kWorthIt * best.bf16;
  return {faster ? Strategy::Precision::bf16 : Strategy::Precision::fp32,
          fmt::format("strategy auto: {}; {} multiplies {:.0f} GFLOP/s in bf16 and {:.0f} in fp32",
                      faster ? "bf16" : "fp32",
                      type == DeviceType::cpu ? "a thread of this processor" : to_string(context.device()),
                      operations / best.bf16, operations / best.fp32)};
}

}  // namespace keel
