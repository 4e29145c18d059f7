// What the trainer's loop costs: a step of `keel train` beside a step of a loop by hand, which has nothing but loader,
// forward and backward pass and the engine. The GPT of 4 layers of width 128 on 12 windows of 64 bytes, fp32; the
// trainer writes a record of every step, checkpoints and evaluations are off.
//
// usage: bench_loop FOLDER [STEPS] [ROUNDS] [THREADS]   a text and runs are made in FOLDER and removed

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "bench/measure.h"
#include "keel/data/loader.h"
#include "keel/data/text_dataset.h"
#include "keel/data/token_batch.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/models/gpt.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/file.h"
#include "keel/runtime/random.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/trainer.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kRows = 12, kBlock = 64;
constexpr int kWarmup = 5;  // steps of each session that are not counted

// Seconds of each step after the first ones, and the last loss, which tells that both learn the same.
struct Session {
  std::vector<double> seconds = {};
  double loss = 0;
};

class StepTimes final : public TrainObserver {
 public:
  void on_step(const StepReport& report) override {
    const auto now = std::chrono::steady_clock::now();
    if (report.step > kWarmup) session.seconds.push_back(std::chrono::duration<double>(now - before_).count());
    before_ = now;
    session.loss = report.loss;
  }
  Session session;

 private:
  std::chrono::steady_clock::time_point before_;
};

Session by_trainer(const std::string& folder, const std::string& text, int steps, int threads) {
  const std::string run = folder + "/bench_loop_run";
  const Config config =
      parse_config(R"(
model: {layers: 4, heads: 4, width: 128, block: 64, dropout: 0}
data: {type: text, tokenizer: byte}
batch: {global: 12}
optimizer: {lr: 1e-3}
scheduler: {type: constant}
log: {every: 1}
strategy: fp32
)",
                   "bench_loop.yaml",
                   {"run=" + run, "data.path=" + text, concat("steps=", steps), concat("threads=", threads),
                    concat("eval.every=", steps + 1), concat("checkpoint.every=", steps + 1), "resume=never"});
  StepTimes times;
  train(config, times);
  std::filesystem::remove_all(run);
  return times.session;
}

Session by_hand(const std::string& text, int steps, int threads) {
  const Context context = Context::create({.threads = threads});
  const TextDataset data = open_text(text, "byte", {.validation = 0.1, .block = kBlock});
  const RandomWindowLoader loader(context, data.train, {.rows = kRows, .block = kBlock, .seed = 1});
  GptOptions options;
  options.layers = 4;
  options.heads = 4;
  options.width = 128;
  options.block = kBlock;
  options.vocabulary = 256;
  Gpt model(options);
  Sharded engine(model, context, make_optimizer(find_optimizer("AdamW")), {.clip = 1});
  Session session;
  for (int step = 0; step < steps; ++step) {
    const double seconds = seconds_of([&] {
      const Batch batch = loader.load_all(step);
      Forward pass;
      pass.training = true;
      const CrossEntropyLoss result = model.loss(batch[kInputIds], batch[kLabels], pass);
      engine.backward(result.loss, {.weight = kRows * kBlock});
      engine.step(1e-3);
      session.loss = result.loss.value().item();
    });
    if (step >= kWarmup) session.seconds.push_back(seconds);
  }
  return session;
}

int run(const std::string& folder, int steps, int rounds, int threads) {
  const std::string text = folder + "/bench_loop.txt";
  std::string bytes(1 << 20, ' ');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>('a' + mix64(i) % 26);
  write_text_file(text, bytes);
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    const Session trainer = by_trainer(folder, text, steps, threads), hand = by_hand(text, steps, threads);
    ratios.push_back(median(trainer.seconds) / median(hand.seconds));
    std::printf("keel train %7.3f ms a step, by hand %7.3f: %.3f; last losses %.9g and %.9g\n",
                1e3 * median(trainer.seconds), 1e3 * median(hand.seconds), ratios.back(), trainer.loss, hand.loss);
  }
  std::filesystem::remove(text);
  std::printf("median ratio %.3f\n", median(ratios));
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::cerr << "usage: bench_loop FOLDER [STEPS] [ROUNDS] [THREADS]\n";
    return 2;
  }
  const auto number = [&](int place, int otherwise) { return argc > place ? std::atoi(argv[place]) : otherwise; };
  try {
    return keel::bench::run(argv[1], number(2, 100), number(3, 5), number(4, 2));
  } catch (const std::exception& error) {
    std::cerr << "bench_loop: " << error.what() << '\n';
    return 1;
  }
}
