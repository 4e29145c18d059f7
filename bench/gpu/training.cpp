// Whole training steps of GPT-2: forward, loss, backward, clipping, AdamW, with the loss read one step late.

#include <array>
#include <cmath>
#include <optional>

#include "bench/gpu/bench.h"
#include "keel/data/token_batch.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/gpt.h"
#include "keel/nn/state.h"
#include "keel/tasks/language.h"
#include "keel/trainer/micro_step.h"

namespace keel::bench {
namespace {

struct Model {
  std::string name;
  GptOptions options;
  bool may_recompute = false;  // where no batch fits without
  bool graph = false;          // forward and backward recorded once and repeated, as cuda_graph does
};

std::vector<Model> all_models(const GpuOptions& options) {
  if (options.rehearse) {
    GptOptions tiny;
    tiny.vocabulary = 96, tiny.block = 16, tiny.layers = 2, tiny.heads = 1, tiny.width = 64;
    return {{"tiny", tiny}, {"tiny, cuda_graph", tiny, false, true}};
  }
  const auto gpt = [](std::string_view name, std::int64_t vocabulary) {
    GptOptions model = gpt_by_name(name);
    model.vocabulary = vocabulary;
    return model;
  };
  // 50,304 is the vocabulary of 50,257 tokens rounded up to a multiple of 128.
  std::vector<Model> models = {{"gpt2 124M", gpt("gpt2", 50304)},
                               {"gpt2 124M, cuda_graph", gpt("gpt2", 50304), false, true}};
  if (options.quick) return models;
  models.push_back({"gpt2-xl 1.5B", gpt("gpt2-xl", 50304), true});
  models.push_back({"gpt2 124M, vocabulary 50257", gpt("gpt2", 50257)});
  return models;
}

// Waits for it.
double value_of(const StepLoss& loss) {
  std::vector<double> sums(StepLoss::kSums * loss.kinds().size());
  loss.add_to(sums);
  return loss_of(loss.kinds(), sums);
}

// The steps of one batch size, on one random batch.
class Steps {
 public:
  Steps(GpuBench& bench, const Gpt& model, Sharded& engine, std::int64_t batch, bool graph)
      : model_(model), engine_(engine) {
    const Context& context = engine.context();
    const Dims shape = {batch, model.options.block};
    batch_ = token_batch(bench.random_tokens(context, shape, model.options.vocabulary),
                         bench.random_tokens(context, shape, model.options.vocabulary),
                         kernels::arange(context, 0, batch), product(shape));
    if (graph)
      graphed_.emplace([&model](const Batch& each, Forward& pass) { return language_loss(model, each, pass); }, engine);
  }

  void operator()() {
    StepLoss loss = forward_backward();
    engine_.step(1e-4);
    if (has_last_) value_of(last_);
    last_ = std::move(loss);
    has_last_ = true;
  }
  double loss() const { return value_of(last_); }

 private:
  StepLoss forward_backward() {
    if (graphed_) return graphed_->run(batch_, true);
    Forward pass{.training = true, .random = {}, .sample_ids = batch_.sample_ids()};
    const Loss loss = language_loss(model_, batch_, pass);
    StepLoss number(loss, batch_);
    backward(engine_, loss, batch_, {}, true);
    return number;
  }

  const Gpt& model_;
  Sharded& engine_;
  Batch batch_;
  std::optional<GraphedMicroStep> graphed_;
  StepLoss last_;
  bool has_last_ = false;
};

Json measure_batch(GpuBench& bench, Gpt& model, Sharded& engine, std::int64_t batch, bool graph) {
  const Context& context = engine.context();
  context.allocator().reset_peaks();
  Steps steps(bench, model, engine, batch, graph);
  steps();
  const double first = steps.loss();
  for (int i = 0; i < 3; ++i) steps();
  const double seconds = bench.race({{context, [&] { steps(); }}}, 0.5)[0];
  const double last = steps.loss();
  KEEL_CHECK(std::isfinite(last), "the loss became ", last, " after ", first);

  const std::int64_t parameters = count_parameters(model), tokens = batch * model.options.block;
  const double rate = static_cast<double>(tokens) / seconds, flops = training_flops_of_token(model.options, parameters);
  Json line = {{"batch", batch},           {"time", model.options.block},   {"recompute", model.recompute},
               {"parameters", parameters}, {"step_seconds", seconds},       {"tokens_per_s", rate},
               {"flops_of_token", flops},  {"tflops", 1e-12 * rate * flops}};
  if (bench.peak() > 0) line["mfu"] = rate * flops / bench.peak();
  line["first_loss"] = first;
  line["last_loss"] = last;
  line["peak_bytes"] = context.memory().total.peak;
  return line;
}

Json measure(GpuBench& bench, const Model& given) {
  const Context& context = bench.automatic();
  Gpt model(given.options);
  Sharded engine(model, context, make_adamw({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}),
                 {.policy = PrecisionPolicy::of(DType::bf16), .clip = 1});
  std::string reason;
  for (const bool recompute : {false, true}) {
    if (recompute && !given.may_recompute) break;
    model.recompute = recompute;
    for (const std::int64_t batch : bench.options().rehearse ? std::array{2, 2, 2, 2} : std::array{64, 32, 16, 8}) {
      try {
        return measure_batch(bench, model, engine, batch, given.graph);
      } catch (const Error& error) {
        if (std::string_view(error.what()).find("out of memory") == std::string_view::npos) throw;
        reason = error.what();
      }
      context.synchronize();
      engine.zero_grad();
      context.allocator().trim();
    }
  }
  throw Error(concat("no batch fits: ", reason), ErrorKind::io);
}

}  // namespace

void bench_training(GpuBench& bench) {
  for (const Model& model : all_models(bench.options()))
    bench.run("training", model.name, [&] { return measure(bench, model); });
}

}  // namespace keel::bench
