// Whole training steps on a device: the engine, and runs of the trainer.

#include "keel/data/token_batch.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/checkpoint/snapshot.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/models/gpt.h"
#include "keel/tasks/language.h"
#include "keel/trainer/micro_step.h"
#include "tests/cuda/device_runs.h"
#include "tests/dist/parallel/sharding_support.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

// Small enough for the emulator: two layers, width 64, sequences of 32.
GptOptions small_gpt() {
  GptOptions options;
  options.vocabulary = 256;
  options.block = 32;
  options.layers = 2;
  options.heads = 4;
  options.width = 64;
  return options;
}

Tensor tokens_of(const Context& context, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (const double value : uniform(32, seed, 0, 256)) tokens.push_back(static_cast<std::int32_t>(value));
  return from_values(context, tokens, {1, 32});
}

// The losses of some AdamW steps, each on a sequence of its own.
std::vector<double> train_small_gpt(const Context& context, DType dtype, int steps) {
  Gpt model(small_gpt());
  Sharded engine(model, context, make_adamw({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}),
                 {.policy = PrecisionPolicy::of(dtype), .clip = 1});
  std::vector<HostCopy> losses;
  for (int step = 0; step < steps; ++step) {
    Forward pass{.training = true, .random = {}, .sample_ids = {}};
    const auto seed = static_cast<std::uint64_t>(step % 5);  // seen again, so that the loss falls
    const CrossEntropyLoss result = model.loss(tokens_of(context, seed), tokens_of(context, seed + 50), pass);
    losses.emplace_back(result.loss.value());
    engine.backward(result.loss, {.weight = 32});
    engine.step(3e-3);
  }
  std::vector<double> values;
  for (const HostCopy& loss : losses) values.push_back(loss.get().item());
  return values;
}

KEEL_DEVICE_SUITE(TrainingOnDevice);

TEST_P(TrainingOnDevice, InNarrowDtypesTheLossesStayNearTheProcessors) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<double> expected = train_small_gpt(host, dtype, 5), losses = train_small_gpt(device, dtype, 5);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], dtype == DType::bf16 ? 3e-2 : 4e-3) << dtype << " step " << i;
  }
}

TEST_P(TrainingOnDevice, TwentyStepsOfASmallGptHaveTheLossesOfTheProcessor) {
  const std::vector<double> expected = train_small_gpt(host, DType::f32, 20);
  const std::vector<double> losses = train_small_gpt(device, DType::f32, 20);
  EXPECT_LT(expected.back(), expected.front() - 1);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4) << "step " << i;
}

// Shorter and narrower than the processor's, for the emulator.
Config tiny_run(const TemporaryFolder& place, const std::string& run, const std::vector<std::string>& more = {}) {
  std::vector<std::string> settings = {"steps=6",       "model.layers=1", "model.block=8",  "batch.global=4",
                                       "batch.micro=2", "eval.every=3",   "eval.batches=2", "checkpoint.every=2"};
  settings.insert(settings.end(), more.begin(), more.end());
  return small_run(place, run, settings);
}

TEST_P(TrainingOnDevice, ARunOfTheTrainerHasTheLossesOfTheProcessorAndWritesTheSameText) {
  const TemporaryFolder place;
  Recorder there, here;
  const TrainResult result = train(tiny_run(place, "there", {on(kTestDevice), "strategy=fp32"}), there);
  train(tiny_run(place, "here", {"device=cpu", "strategy=fp32"}), here);
  ASSERT_EQ(there.losses.size(), 6u);
  ASSERT_EQ(here.losses.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(there.losses[i], here.losses[i], 1e-4);
  EXPECT_GT(result.memory[Purpose::parameter].peak, 0u);

  for (const double temperature : {0.0, 1.0}) expect_text_of_the_processor(place / "there", temperature);
}

TEST_P(TrainingOnDevice, ARecordedMicroStepHasTheBitsOfAnOrdinaryOne) {
  choose_products_untimed();
  const TemporaryFolder place;
  Recorder ordinary, recorded;
  const std::vector<std::string> settings = {on(kTestDevice), "strategy=bf16", "model.dropout=0"};
  const Config config = tiny_run(place, "a", settings);
  train(config, ordinary);
  std::vector<std::string> with_graph = settings;
  with_graph.push_back("cuda_graph=true");
  const Config graphed = tiny_run(place, "b", with_graph);
  train(graphed, recorded);
  EXPECT_EQ(recorded.losses, ordinary.losses);
  EXPECT_EQ(weights_of(graphed), weights_of(config));
}

// The norms of steps with these micro-batches, which have targets where a row says so: recorded equal ordinary.
void expect_recorded_steps_equal(const Context& device, const std::vector<std::vector<bool>>& steps) {
  GptOptions options = small_gpt();
  options.layers = 1;
  options.block = 8;
  const auto batch_of = [&](std::uint64_t seed, bool targets) {
    std::vector<std::int32_t> tokens;
    for (const double value : uniform(16, seed, 0, 256)) tokens.push_back(static_cast<std::int32_t>(value));
    const std::vector<std::int32_t> ignored(16, kIgnoreTarget);
    return token_batch(from_values(device, tokens, {2, 8}), from_values(device, targets ? tokens : ignored, {2, 8}),
                       kernels::arange(device, 0, 2), targets ? 16 : 0);
  };
  std::vector<double> norms[2];
  for (const bool recorded : {false, true}) {
    Gpt model(options);
    Sharded engine(model, device, make_adamw(), {.policy = PrecisionPolicy::of(DType::bf16), .micro_batches = 2});
    GraphedMicroStep graphed([&](const Batch& batch, Forward& pass) { return language_loss(model, batch, pass); },
                             engine);
    std::uint64_t seed = 0;
    for (const std::vector<bool>& micro_batches : steps) {
      for (std::size_t i = 0; i < micro_batches.size(); ++i) {
        const Batch batch = batch_of(++seed, micro_batches[i]);
        const bool last = i + 1 == micro_batches.size();
        if (recorded) {
          graphed.run(batch, last);
          continue;
        }
        Forward pass{.training = true, .random = {}, .sample_ids = batch.sample_ids()};
        engine.backward(model.loss(batch[kInputIds], batch[kLabels], pass).loss,
                        {.weight = batch.weight(kTokenWeight), .last = last});
      }
      norms[recorded].push_back(engine.step(1e-3).get().grad_norm);
    }
  }
  EXPECT_EQ(norms[1], norms[0]);
}

TEST_P(TrainingOnDevice, ARecordedMicroStepMayFollowOneWithoutTargets) {
  choose_products_untimed();
  expect_recorded_steps_equal(device,
                              {{true, true}, {true, true}, {true, true}, {true, true}, {false, true}, {true, false}});
}

TEST_P(TrainingOnDevice, ASecondMicroBatchMayComeAfterTheFirstWasRecorded) {
  choose_products_untimed();
  expect_recorded_steps_equal(device,
                              {{true}, {true}, {true}, {true}, {true, true}, {true, true}, {true, true}, {true, true}});
}

// Totals of several weights change from step to step, and so would the factors that a graph repeats.
TEST_P(TrainingOnDevice, ALossOfSeveralTermsOrWithValuesToLogIsNotRecorded) {
  choose_products_untimed();
  GptOptions options = small_gpt();
  options.layers = 1;
  Gpt model(options);
  Sharded engine(model, device, make_adamw(), {.policy = PrecisionPolicy::of(DType::bf16)});
  const Batch batch = token_batch(tokens_of(device, 1), tokens_of(device, 2), kernels::arange(device, 0, 1), 32);
  const auto refusal = [&](bool logs) {
    GraphedMicroStep graphed(
        [&](const Batch& given, Forward& pass) {
          const Variable value = language_loss(model, given, pass).terms().front().value;
          Loss loss;
          loss.add("text", value, std::string(kTokenWeight));
          if (logs) loss.log("seen", value.value(), "rows");
          else loss.add("again", value, "rows", 0.5);
          return loss;
        },
        engine);
    return error_of([&] { graphed.run(batch, true); });
  };
  const std::string of_terms = refusal(false);
  EXPECT_NE(of_terms.find("cuda_graph repeats a loss of one term"), std::string::npos) << of_terms;
  EXPECT_NE(of_terms.find("term 'again', a mean over rows, times 0.5"), std::string::npos) << of_terms;
  EXPECT_NE(refusal(true).find("'seen', logged as a mean over rows"), std::string::npos);
}

TEST_P(TrainingOnDevice, AStoppedRunContinuesToTheSameBits) {
  choose_products_untimed();
  const TemporaryFolder place;
  Recorder whole, first(2), second;
  const Config uninterrupted = tiny_run(place, "a", {on(kTestDevice), "strategy=bf16"});
  train(uninterrupted, whole);
  EXPECT_EQ(train(tiny_run(place, "b", {on(kTestDevice), "strategy=bf16"}), first).end, TrainEnd::stopped);
  const Config resumed = tiny_run(place, "b", {on(kTestDevice), "strategy=bf16", "resume=auto"});
  train(resumed, second);
  EXPECT_EQ(weights_of(uninterrupted), weights_of(resumed));
  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(losses, whole.losses);
}

// The device works on step 4 when what step 3 gave is reported.
TEST_P(TrainingOnDevice, WhatAnObserverThrowsLosesNoStepThatIsSaved) {
  class Thrower : public Recorder {
   public:
    void on_step(const StepReport& report) override {
      Recorder::on_step(report);
      if (report.step == 3) throw Error("enough");
    }
  };
  const TemporaryFolder place;
  Thrower thrower;
  const Config config = tiny_run(place, "a", {on(kTestDevice), "strategy=bf16", "eval.every=0", "checkpoint.every=0"});
  EXPECT_THROW(train(config, thrower), Error);
  ASSERT_EQ(RunFolder(config.run).checkpoint_steps(), std::vector<std::int64_t>{4});
  EXPECT_EQ(thrower.losses.size(), 4u);
  EXPECT_NE(read_text_file(RunFolder(config.run).metrics()).find("{\"step\":4,\"loss\""), std::string::npos);
}

TEST_P(TrainingOnDevice, ALossThatIsNotFiniteEndsTheRunAndNamesItsStepAndTensor) {
  const TemporaryFolder place;
  Recorder recorder;
  const Config config = tiny_run(
      place, "a",
      {on(kTestDevice), "strategy=fp32", "optimizer.lr=1e30", "scheduler={type: constant}", "model.dropout=0"});
  const std::string message = error_of([&] { train(config, recorder); });
  EXPECT_NE(message.find("step 2: the loss is"), std::string::npos) << message;
  EXPECT_NE(message.find("first bad tensor: output of "), std::string::npos) << message;
  EXPECT_FALSE(RunFolder(config.run).checkpoint_steps().empty());
}

#ifdef KEEL_EMULATED
TEST_P(TrainingOnDevice, AStepNeverWaitsForTheDevice) {
  Gpt model(small_gpt());
  Sharded engine(model, device, make_adamw(), {.policy = PrecisionPolicy::of(DType::bf16), .clip = 1});
  const Tensor inputs = tokens_of(device, 1), targets = tokens_of(device, 2);
  std::vector<PendingStep> steps;
  std::uint64_t waits = 0;
  for (int step = 0; step < 3; ++step) {
    waits = emulation::Machine::get().waits();
    Forward pass{.training = true, .random = {}, .sample_ids = {}};
    engine.backward(model.loss(inputs, targets, pass).loss, {.weight = 32});
    steps.push_back(engine.step(1e-3));
  }
  EXPECT_EQ(emulation::Machine::get().waits(), waits) << "during the last step";
  EXPECT_EQ(steps.back().get().steps_taken, 3);
  EXPECT_GT(emulation::Machine::get().waits(), waits);
}

// Copies, batches, kernels and graphs of several streams in any order that events allow.
TEST(TrainingOnDevices, GivesTheSameBitsForEveryDrainSeed) {
  for (const bool graph : {false, true}) {
    std::string expected;
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
      emulation::Machine::get().reset({.drain_seed = seed});
      const TemporaryFolder place;
      Recorder recorder;
      std::vector<std::string> settings = {on(kTestDevice), "strategy=bf16"};
      if (graph) settings.insert(settings.end(), {"model.dropout=0", "cuda_graph=true"});
      const Config config = tiny_run(place, "a", settings);
      train(config, recorder);
      if (seed == 0) expected = weights_of(config);
      EXPECT_EQ(weights_of(config), expected) << "drain seed " << seed << (graph ? ", as a graph" : "");
    }
  }
  emulation::Machine::get().reset({});
}

// Nobody asks for the copy before the next step is over: by then it must have left.
TEST_P(TrainingOnDevice, ASnapshotHasTheNumbersOfItsMoment) {
  Gpt model(small_gpt());
  Sharded engine(model, device, make_adamw(), {.policy = PrecisionPolicy::of(DType::bf16), .clip = 1});
  const Tensor inputs = tokens_of(device, 1), targets = tokens_of(device, 2);
  const auto step = [&] {
    Forward pass{.training = true, .random = {}, .sample_ids = {}};
    engine.backward(model.loss(inputs, targets, pass).loss, {.weight = 32});
    EXPECT_TRUE(engine.step(1e-3).get().taken);
  };
  const auto numbers = [](const std::vector<Section>& sections) {
    std::vector<double> all;
    for (const Section& section : sections)
      for (const double value : numbers_of(section.parts)) all.push_back(value);
    return all;
  };
  const std::vector<Section> sections = sections_of(engine, {.index = 0});
  Snapshot snapshot(sections);
  for (int i = 0; i < 2; ++i) {
    step();
    const std::vector<double> before = numbers(sections);
    snapshot.take(sections, engine);
    step();
    EXPECT_TRUE(numbers(snapshot.sections()) == before);
    EXPECT_FALSE(numbers(sections) == before);
  }
}

// The copy leaves on a stream of its own while the next step is under way.
TEST(TrainingOnDevices, ASaveBesideTheTrainingHasTheNumbersOfItsStepForEveryDrainSeed) {
  const auto saved = [](std::uint64_t seed, const std::string& async) {
    emulation::Machine::get().reset({.drain_seed = seed});
    const TemporaryFolder place;
    Recorder recorder;
    const Config config = tiny_run(
        place, "a",
        {on(kTestDevice), "strategy=bf16", "checkpoint.every=1", "checkpoint.keep=100", "checkpoint.async=" + async});
    train(config, recorder);
    std::string bytes;
    for (const std::int64_t step : RunFolder(config.run).checkpoint_steps())
      for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
        bytes += read_text_file(RunFolder(config.run).checkpoint(step) + file);
    return bytes;
  };
  const std::string expected = saved(0, "false");
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5})
    EXPECT_TRUE(saved(seed, "true") == expected) << "drain seed " << seed;
  emulation::Machine::get().reset({});
}

TEST(TrainingOnDevices, WeightsThatAreLoadedLeaveASnapshotOnItsWayAlone) {
  const TemporaryFolder place;
  const std::string file = "model.safetensors";
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    emulation::Machine::get().reset({.drain_seed = seed});
    run_ranks(1, [&](Communicator& ranks) {
      const Context device = Context::create({.device = kTestDevice, .threads = 1});
      Gpt model(small_gpt()), other(small_gpt());
      Sharded engine(model, device, ranks, make_adamw());
      save_checkpoint(place / "c", Sharded(other, device, ranks, make_adamw(), {.seed = 2}), ranks, {});
      const std::vector<Section> sections = sections_of(engine, {.index = 0});
      Snapshot snapshot(sections);
      const std::vector<double> before = numbers_of(sections.front().parts);
      snapshot.take(sections, engine);
      load_weights(place / "c", std::span(&file, 1), engine, ranks);
      EXPECT_TRUE(numbers_of(snapshot.sections().front().parts) == before) << "drain seed " << seed;
      EXPECT_FALSE(numbers_of(sections.front().parts) == before);
    });
  }
  emulation::Machine::get().reset({});
}

// Wherever in a run the memory ends: in the model, on the way of a batch, in a recording.
TEST(TrainingOnDevices, AFullDeviceEndsTheRunWithAnErrorAndLeavesNothingBehind) {
  for (const std::string graph : {"cuda_graph=false", "cuda_graph=true"}) {
    int failed = 0;
    bool trained = false;
    for (std::size_t bytes = 20000; !trained; bytes += bytes / 4) {
      emulation::Machine::get().reset({.bytes = bytes});
      const TemporaryFolder place;
      Recorder recorder;
      const Config config = tiny_run(
          place, "a", {on(kTestDevice), "strategy=bf16", "steps=4", "model.dropout=0", "check_memory=false", graph});
      try {
        train(config, recorder);
        trained = true;
      } catch (const Error& error) {
        EXPECT_NE(std::string_view(error.what()).find("out of memory on emulated:0: "), std::string_view::npos)
            << error.what();
        ++failed;
      }
      EXPECT_EQ(emulation::Machine::get().bytes_in_use(0), 0u) << "of " << bytes;
    }
    EXPECT_GT(failed, 3);
  }
  emulation::Machine::get().reset({});
}

TEST(TrainingOnDevices, NoHostCodeTouchesDeviceMemory) {
  emulation::Machine::get().reset({.guard_memory = true});  // such an access would crash here
  const TemporaryFolder place;
  Recorder recorder;
  train(tiny_run(place, "a", {on(kTestDevice), "strategy=bf16", "steps=2", "scheduler.warmup=1"}), recorder);
  EXPECT_EQ(recorder.losses.size(), 2u);
  emulation::Machine::get().reset({});
}
#endif

}  // namespace
}  // namespace keel
