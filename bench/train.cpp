// Whole training steps of a GPT-2, or of a model of the catalog: speed, share of the matrix products, memory.
//
//   bench_train --setting b --dtype bf16             times steps on random tokens
//   bench_train --setting b --dtype bf16 --floor     interleaves whole steps with the step's own matrix products
//   bench_train --setting b --dtype bf16 --serve     steps on request, as bench/peers/train_gpt.py does
//   keel launch -N 2 bench_train --mpi --stage 2     two ranks, each with its rows of the batch; the first one prints
//   bench_train --model FOLDER --serve               a model and a batch that bench/peers/train_model.py has written
//   bench_train --stage -1                           the same step without an engine: what it costs
//
// Setting, step and output are those of bench/peers/train_gpt.py and train_model.py; standard output carries JSON, one
// object a line.

#include <sys/resource.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/measure.h"
#include "bench/trained_model.h"
#include "keel/autograd/backward.h"
#include "keel/autograd/flops.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/update.h"
#ifdef KEEL_HAVE_MPI
#include "keel/dist/comm/mpi_session.h"
#endif

namespace keel::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Setting {
  int layers, heads;
  std::int64_t width, vocabulary, block, batch;
};
const std::map<std::string, Setting> kSettings = {
    {"a", {4, 4, 128, 65, 64, 12}}, {"b", {6, 6, 384, 65, 256, 16}}, {"c", {12, 12, 768, 50257, 256, 4}}};

struct Options {
  std::string setting = "a", dtype = "fp32", kernels = "auto", model;
  int threads = 0, steps = 10, warmup = 3, stage = 0;
  double seconds = 10, lr = 1e-3;
  bool serve = false, floor = false, mpi = false;
};

DType dtype_of(const Options& options) { return options.dtype == "bf16" ? DType::bf16 : DType::f32; }

GptOptions model_options(const Setting& setting) {
  GptOptions options;
  options.layers = setting.layers;
  options.heads = setting.heads;
  options.width = setting.width;
  options.vocabulary = setting.vocabulary;
  options.block = setting.block;
  return options;
}

// What a step without an engine needs: flat memory, the optimizer's state, the kernels that decide and update.
class PlainEngine {
 public:
  PlainEngine(Module& model, const Context& context, std::unique_ptr<const Optimizer> optimizer, DType dtype)
      : optimizer_(std::move(optimizer)),
        buffers_(materialize(model, context, {.policy = PrecisionPolicy::of(dtype)})),
        state_(kernels::make_step_state(context)) {
    for (const FlatBuffer& buffer : buffers_)
      for (const Segment& segment : buffer.segments) {
        const auto cut = [&](const Tensor& flat) {
          return flat.defined() ? flat.slice(0, segment.offset, segment.offset + segment.numel) : Tensor();
        };
        ranges_.push_back({cut(buffer.values),
                           cut(buffer.master),
                           cut(buffer.gradient),
                           {},
                           decay_matrices_only(segment.name, segment.shape)});
        for (int i = 0; i < 2; ++i)
          ranges_.back().state.push_back(zeros(context, {segment.numel}, DType::f32, Purpose::optimizer));
      }
  }
  void step(const Variable& loss, double lr) {
    backward(loss);
    std::int64_t first = 0;
    for (FlatBuffer& buffer : buffers_) {
      kernels::add_squares(buffer.gradient.slice(0, 0, buffer.numel), state_, first);
      first += buffer.numel;
    }
    kernels::add_tokens(state_, 1);
    kernels::decide_step({.state = state_, .clip = 1, .lr = lr});
    optimizer_->update(ranges_, {.step = state_});
    for (FlatBuffer& buffer : buffers_) buffer.zero_grad();
  }

 private:
  std::unique_ptr<const Optimizer> optimizer_;
  std::vector<FlatBuffer> buffers_;
  std::vector<ParameterRange> ranges_;
  Tensor state_;
};

// Forward, backward, clipping to norm 1, AdamW, clearing; on the rank's rows of the batch.
class Trainer {
 public:
  Trainer(const Context& context, const Options& options, Communicator& ranks)
      : model_(trained_model(context, options, ranks)), dtype_(dtype_of(options)), lr_(options.lr) {
    auto optimizer = make_adamw({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
    if (options.stage < 0) {
      plain_.emplace(*model_.module, context, std::move(optimizer), dtype_);
      return;
    }
    engine_.emplace(
        *model_.module, context, ranks, std::move(optimizer),
        ShardedOptions{.policy = PrecisionPolicy::of(dtype_), .clip = 1, .sharding = {.stage = options.stage}});
    if (model_.load) model_.load(*engine_);
  }

  void step() {
    Forward pass{.training = true, .random = {1, steps_++, 0}, .sample_ids = model_.sample_ids, .dtype = dtype_};
    const FlopCount count;
    const CrossEntropyLoss result = model_.loss(pass);
    if (plain_) {
      plain_->step(result.loss, lr_);
    } else {
      engine_->backward(result.loss, {.weight = model_.weight});
      engine_->step(lr_);
    }
    flops_ = count.flops();
    loss_ = result.loss.value().item();
    if (losses_.size() < 8) losses_.push_back(loss_);
  }
  double loss() const { return loss_; }
  const std::vector<double>& losses() const { return losses_; }
  double flops() const { return flops_; }  // of a step's products, as its operations ask for them
  double tokens() const { return model_.tokens; }
  double waited_ms() const { return engine_ ? engine_->waited_ms() : 0; }
  std::int64_t parameters() { return count_parameters(*model_.module); }

 private:
  static TrainedModel trained_model(const Context& context, const Options& options, Communicator& ranks) {
    if (!options.model.empty()) return model_of_folder(context, options.model, ranks);
    const Setting& setting = kSettings.at(options.setting);
    return random_gpt(context, model_options(setting), setting.batch, ranks);
  }

  TrainedModel model_;
  DType dtype_;
  double lr_;
  std::optional<PlainEngine> plain_;
  std::optional<Sharded> engine_;
  std::uint64_t steps_ = 0;
  double loss_ = 0, flops_ = 0;
  std::vector<double> losses_;  // of the first steps
};

// The linear layers' products of one step, forward and backward, on their own operands; attention's are left out, so
// that the share of the floor is rather too small than too large.
class Products {
 public:
  Products(const Context& context, const Setting& setting, DType dtype) {
    const std::int64_t rows = setting.batch * setting.block, width = setting.width;
    for (const auto& [out, in, times] : {std::tuple{3 * width, width, setting.layers},
                                         {width, width, setting.layers},
                                         {4 * width, width, setting.layers},
                                         {width, 4 * width, setting.layers},
                                         {setting.vocabulary, width, 1}}) {
      for (int i = 0; i < times; ++i)
        layers_.push_back({zeros(context, {rows, in}, dtype), zeros(context, {out, in}, dtype),
                           zeros(context, {rows, out}, dtype), zeros(context, {out, in}, dtype)});
      flops_ += 6.0 * static_cast<double>(times * rows * out * in);
    }
  }
  void run() const {
    for (const Layer& layer : layers_) kernels::matmul(layer.x, layer.weight.transpose(0, 1), {.into = layer.grad});
    for (const Layer& layer : layers_) {
      kernels::matmul(layer.grad, layer.weight, {.into = layer.x});
      kernels::matmul(layer.grad.transpose(0, 1), layer.x, {.into = layer.grad_weight});
    }
  }
  double flops() const { return flops_; }

 private:
  struct Layer {
    Tensor x, weight, grad, grad_weight;
  };
  std::vector<Layer> layers_;
  double flops_ = 0;
};

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

Json describe(const Context& context, const Options& options, Trainer& trainer, const Communicator& ranks) {
  const DType dtype = dtype_of(options);
  Json memory;
  const MemoryReport report = context.memory();
  for (int i = 0; i < kPurposeCount; ++i)
    memory[std::string(name_of(static_cast<Purpose>(i)))] = report.by_purpose[static_cast<std::size_t>(i)].peak;
  return {{"program", "keel"},
          {"threads", context.threads()},
          {"dtype", options.dtype},
          {"matmul", kernels::matmul_backend(context, dtype)},
          {"setting", options.model.empty() ? options.setting : options.model},
          {"parameters", trainer.parameters()},
          {"loss", trainer.loss()},
          {"losses", trainer.losses()},
          {"step_flops", trainer.flops()},
          {"peak_rss_bytes", peak_rss_bytes()},
          {"peak_bytes", memory},
          {"ranks", ranks.size()},
          {"stage", options.stage},
          {"waited_ms", trainer.waited_ms()}};
}

void serve(const Context& context, const Options& options, Trainer& trainer, Communicator& ranks) {
  const bool first = ranks.rank() == 0;
  while (true) {
    std::string line;
    if (first && !std::getline(std::cin, line)) line = "quit";
    line = broadcast_text(ranks, line);
    if (line == "quit") return;
    int steps = 0;
    Json answer;
    if (std::sscanf(line.c_str(), "step %d", &steps) == 1 && steps > 0) {
      const double seconds = seconds_of([&] {
        for (int i = 0; i < steps; ++i) trainer.step();
      });
      answer = describe(context, options, trainer, ranks);
      answer["seconds"] = seconds;
      answer["steps"] = steps;
    } else {
      answer = {{"error", "expected 'step N' or 'quit', got '" + line + "'"}};
    }
    if (first) std::cout << answer.dump() << std::endl;
  }
}

int run(const Options& options, Communicator& ranks) {
  ContextOptions context_options;
  context_options.threads = options.threads;
  if (options.kernels == "plain") context_options.kernels = KernelChoice::plain;
  const Context context = Context::create(context_options);
  Trainer trainer(context, options, ranks);
  for (int i = 0; i < options.warmup; ++i) trainer.step();
  if (options.serve) {
    serve(context, options, trainer, ranks);
    return 0;
  }
  const double tokens = trainer.tokens();
  Json result;
  if (options.floor) {
    const Products products(context, kSettings.at(options.setting), dtype_of(options));
    Race race({[&] { trainer.step(); }, [&] { products.run(); }});
    race.run_for(options.seconds);
    const double step = race.median(0), multiplying = race.median(1);
    result = describe(context, options, trainer, ranks);
    result["step_seconds"] = step;
    result["products_seconds"] = multiplying;
    result["products_gflops"] = products.flops() / multiplying * 1e-9;
    result["products_share"] = multiplying / step;
    result["tokens_per_s"] = tokens / step;
  } else {
    std::vector<double> seconds;
    for (int i = 0; i < options.steps; ++i) seconds.push_back(seconds_of([&] { trainer.step(); }));
    const double step = median(seconds);
    result = describe(context, options, trainer, ranks);
    result["step_seconds"] = step;
    result["tokens_per_s"] = tokens / step;
  }
  if (ranks.rank() == 0) std::cout << result.dump() << std::endl;
  return 0;
}

int run(const Options& options) {
  if (!options.mpi) return run(options, *make_communicator(ThreadHub(1).connect(0)));
#ifdef KEEL_HAVE_MPI
  const MpiSession session;
  return run(options, *make_mpi_communicator(session.all()));
#else
  std::cerr << "this build has no MPI\n";
  return 2;
#endif
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  keel::bench::Options options;
  CLI::App app("Times training steps of a GPT-2 or of a model from a folder.");
  app.add_option("--setting", options.setting, "a, b or c")
      ->check(CLI::IsMember({"a", "b", "c"}))
      ->capture_default_str();
  CLI::Option* model =
      app.add_option("--model", options.model, "a folder of train_model.py --write, in place of a setting")
          ->check(CLI::ExistingDirectory);
  app.add_option("--dtype", options.dtype, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--kernels", options.kernels, "auto or plain")->check(CLI::IsMember({"auto", "plain"}));
  app.add_option("--threads", options.threads, "0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps, "timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps before the timed ones")->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", options.seconds, "of --floor")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--lr", options.lr, "learning rate")->capture_default_str();
  app.add_option("--stage", options.stage, "of sharding; -1: no engine, for settings alone")
      ->check(CLI::Range(-1, 3))
      ->capture_default_str();
  app.add_flag("--mpi", options.mpi, "the ranks of an MPI program");
  app.add_flag("--serve", options.serve, "step when standard input says so");
  app.add_flag("--floor", options.floor, "interleave with the step's own matrix products")->excludes(model);
  CLI11_PARSE(app, argc, argv);
  if (!options.model.empty() && options.stage < 0) {
    std::cerr << "a folder's weights are read by an engine: give --stage 0 to 3 with --model\n";
    return 2;
  }
  return keel::bench::run(options);
}
