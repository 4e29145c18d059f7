// Lengths in steps and epochs: of runs, and of what lies between two evaluations, checkpoints and records.

#include "keel/trainer/length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "keel/autograd/functions.h"
#include "keel/config/schema.h"
#include "keel/config/yaml_reader.h"
#include "keel/nn/layers.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;
using Steps = std::vector<std::int64_t>;

TEST(Length, IsReadInStepsAndEpochsAndWrittenTheSameWay) {
  const std::pair<const char*, const char*> same[] = {
      {"500", "500"},       {"500 steps", "500"},     {"1 step", "1"},
      {"step", "1"},        {"20st", "20"},           {"2 Epochs", "2 epochs"},
      {"epoch", "1 epoch"}, {"1ep", "1 epoch"},       {"0.5 epochs", "0.5 epochs"},
      {"0", "0"},           {"2.5eps", "2.5 epochs"}, {"1e3", "1000"},
      {"75%", "75%"},       {"0.5 %", "0.5%"},        {"100%", "100%"}};
  for (const auto& [text, meaning] : same) {
    EXPECT_EQ(Length::parse(text).text(), meaning) << text;
    EXPECT_EQ(Length::parse(meaning), Length::parse(text));
  }
  for (const char* wrong : {"", "soon", "-1", "1.5", "0 epochs", "-2 epochs", "nan epochs", "inf epochs", "5 days",
                            "1e99", "%", "0%", "101%", "-1%", "nan%"})
    EXPECT_EQ(error_of([&] { Length::parse(wrong); }),
              concat("expects steps, epochs or a part of the run, such as 500, 0.5 epochs or 10%, got '", wrong, "'"));
}

TEST(Length, IsReadOfATextThatIsPartOfAnother) {
  constexpr std::string_view kText = "1250%";
  for (std::size_t end = 1; end <= 4; ++end)
    EXPECT_EQ(Length::parse(kText.substr(0, end)).text(), kText.substr(0, end));
}

// A value without a unit is refused as any whole number is, one with a unit by what there may be.
TEST(Length, OfEveryKeyIsRefusedWithWhatTheKeyTakes) {
  Config config;
  int keys = 0;
  for (const SchemaRow& row : keel_keys()->schema("language").rows()) {
    const std::string takes = row.field->values(row),
                      units = ", epochs as in 0.5 epochs, or a part of the run as in 10%";
    if (takes.find(units) == std::string::npos || takes.find("list") != std::string::npos) continue;
    ++keys;
    const auto refusal = [&](const std::string& text) {
      const YamlDocument document = read_yaml(concat("value: ", text));
      return error_of([&] { row.field->set(row, config, document.root.entries.at(0).value); });
    };
    for (const std::string text : {"x", "y!", "1.5", "-1", "1e3x", "no", "5 d"})
      EXPECT_EQ(refusal(text), concat("expects ", takes, ", got '", text, "'")) << row.key;
    EXPECT_EQ(refusal("'5'"), concat("expects ", takes, ", got '5' in quotes, which make it a text")) << row.key;
    EXPECT_EQ(refusal("[5]"), concat("expects ", takes, ", got a list")) << row.key;
    for (const std::string text : {"5 days", "0%", "S", "P", "-1 steps"})
      EXPECT_EQ(refusal(text),
                concat("expects steps, epochs or a part of the run, such as 500, 0.5 epochs or 10%, got '", text, "'"))
          << row.key;
    for (const std::string text : {"2 steps", "2 EPOCHS", "1 ep", "50%", "2 STS"})
      EXPECT_EQ(refusal(text), "") << row.key;
  }
  EXPECT_GE(keys, 5);
}

TEST(Length, WasDueBeforeAStepAtItsLastMultipleOrNever) {
  for (const std::int64_t step : {0, 1, 2, 100}) EXPECT_EQ(Length().due_before(step), 0) << step;
  for (std::int64_t every = 1; every <= 7; ++every)
    for (std::int64_t step = 0; step <= 30; ++step) {
      std::int64_t last = 0;
      for (std::int64_t at = 1; at < step; ++at)
        if (at % every == 0) last = at;
      EXPECT_EQ(Length(every).due_before(step), last) << step << " every " << every;
    }
}

Steps due(Length length, double steps_per_epoch, std::int64_t steps) {
  length.measure(steps_per_epoch, 0);
  Steps all;
  for (std::int64_t step = 1; step <= steps; ++step)
    if (length.is_due(step)) all.push_back(step);
  return all;
}

TEST(Length, IsDueWhereItsMultiplesEnd) {
  EXPECT_EQ(due(Length(3), 7, 10), (Steps{3, 6, 9}));
  EXPECT_EQ(due(Length(0), 7, 10), Steps{});
  EXPECT_EQ(due(Length::of_epochs(1), 4, 9), (Steps{4, 8}));
  EXPECT_EQ(due(Length::of_epochs(0.5), 7, 14), (Steps{4, 7, 11, 14}));
  EXPECT_EQ(due(Length::of_epochs(0.1), 10, 12), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(due(Length::of_epochs(1), 2.5, 10), (Steps{3, 5, 8, 10}))
      << "a step that ends one epoch and begins the next";
  // A multiple lies between each due step and the one before it, and none between others.
  for (Length length : {Length(1), Length(3), Length::of_epochs(0.5), Length::of_epochs(0.03), Length::of_epochs(2)}) {
    const Steps all = due(length, 7, 60);
    length.measure(7, 0);
    std::int64_t before = 0;
    for (std::int64_t step = 1; step <= 60; ++step) {
      EXPECT_EQ(length.due_before(step), before) << length.text() << " at " << step;
      EXPECT_EQ(length.is_due_between(before, step), std::ranges::count(all, step) == 1) << length.text();
      if (std::ranges::count(all, step) == 1) before = step;
    }
  }
  // No multiple is lost to rounding: one step in each tenth of an epoch, however long the run.
  for (const double epoch : {30.0, 70.0, 1e5}) {
    const auto count =
        static_cast<std::int64_t>(due(Length::of_epochs(0.1), epoch, static_cast<std::int64_t>(3 * epoch)).size());
    EXPECT_EQ(count, 30) << epoch;
  }
}

TEST(Length, OfAPartOfTheRunIsMeasuredByItsSteps) {
  Length part = Length::parse("30%");
  EXPECT_EQ(error_of([&] { (void)part.last_step(); }), "a length of 30% has not been measured in steps");
  EXPECT_EQ(error_of([&] { (void)Length::of_epochs(2).is_due(3); }),
            "a length of 2 epochs has not been measured in steps");
  part.measure(0, 10);
  EXPECT_EQ(part.last_step(), 3);
  EXPECT_TRUE(part.is_due(3) && part.is_due(6) && part.is_due(9) && !part.is_due(10));
  part.measure(0, 11);
  EXPECT_EQ(part.last_step(), 4) << "the first step that reaches 3.3";
  EXPECT_EQ(Length().last_step(), 0);
  EXPECT_EQ(Length(5).last_step(), 5);
}

// y = 2 x - 1, of points that are not a multiple of a step's rows.
DatasetPtr line(std::int64_t size) {
  return made_dataset(size, "line", [size](std::int64_t i) {
    const float x = static_cast<float>(i) / static_cast<float>(size);
    return Example().set("x", Numbers{{1}, {x}}).set("y", Numbers{{1}, {2 * x - 1}});
  });
}

class FitLine : public Task {
 public:
  explicit FitLine(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    Data data = make_data(site_, line(23), 0, stack());
    data.validation = {{"", make_source(site_.host, line(5), sequential(5, 4), stack())}};
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return mse_loss(net_(input(batch, "x", pass), pass), input(batch, "y", pass));
  }

 private:
  TaskSite site_;
  Mlp net_{{1, 8, 1}, ActivationKind::tanh};
};

// 23 rows in steps of 6: an epoch has four, the last of which has 5 rows.
Config line_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<FitLine>("line");
  return task_run(keys, R"(
epochs: 2.5
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
scheduler: {type: linear, warmup: 1}
eval: {every: 0.5 epochs}
checkpoint: {every: 1 epoch, keep: 9}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

class EpochEvents : public Callback {
 public:
  std::string_view name() const override { return "epoch_events"; }
  void epoch_begin(LoopView& v) override { seen += concat("begin ", v.state().step, '\n'); }
  void epoch_end(LoopView& v) override { seen += concat("end ", v.state().step, " after ", v.state().epoch, '\n'); }
  void evaluation_end(LoopView& v, bool) override { seen += concat("evaluation ", v.state().step, '\n'); }
  std::string seen;
};

TEST(Epochs, AreCountedByTheDataInEveryStageByAnyNumberOfRanks) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    std::string weights;
    for (const char* stage : {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"}) {
      const Config config = line_run(place, stage, {concat("strategy=", stage)});
      run_ranks(n, [&](Communicator& ranks) {
        Recorder recorder;
        const auto events = std::make_shared<EpochEvents>();
        EXPECT_EQ(train(config, recorder, ranks, {events}).step, 10);
        EXPECT_EQ(events->seen,
                  "begin 1\nevaluation 2\nevaluation 4\nend 4 after 1\nbegin 5\nevaluation 6\nevaluation 8\n"
                  "end 8 after 2\nbegin 9\nevaluation 10\n");
        EXPECT_EQ(recorder.checkpoints, (Steps{4, 8, 10}));
      });
      if (weights.empty()) weights = weights_of(config);
      EXPECT_TRUE(weights_of(config) == weights) << stage << " by " << n;
      std::vector<double> epochs, rates;
      std::int64_t rows = 0;
      for (const Json& record : read_metrics(RunFolder(config.run).metrics())) {
        if (!record.contains("epoch")) continue;
        epochs.push_back(record.at("epoch").number());
        rates.push_back(record.at("lr").number());
        rows = record.at("rows").integer();
      }
      ASSERT_EQ(epochs.size(), 10u);
      for (std::size_t i = 0; i < epochs.size(); ++i) EXPECT_EQ(epochs[i], static_cast<double>(i + 1) / 4);
      EXPECT_EQ(rows, 23 + 23 + 12) << "no row twice, none left out";
      EXPECT_GT(rates[1], rates[8]) << "the schedule falls over the ten steps of the epochs";
    }
    // The same, resumed in the midst of an epoch.
    train_by(n, line_run(place, "parts", {"strategy=zero1-fp32"}), n == 1 ? 6 : 5);
    train_by(n, line_run(place, "parts", {"strategy=zero3-fp32", "resume=auto"}));
    EXPECT_TRUE(weights_of(line_run(place, "parts")) == weights) << n;
  }
}

// A mean over the rows that there are, whoever computes them.
TEST(Epochs, EndInAStepOfFewerRowsThatIsDividedLikeAnyOther) {
  std::vector<double> first;
  for (const int n : {1, 2, 3})
    for (const char* micro : {"batch.micro=6", "batch.micro=2", "batch.micro=1"}) {
      const TemporaryFolder place;
      const auto recorders = train_by(n, line_run(place, "run", {micro}));
      const std::vector<double>& losses = recorders[0]->losses;
      if (first.empty()) first = losses;
      ASSERT_EQ(losses.size(), 10u);
      for (std::size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], first[i], 1e-5 * first[i]) << "step " << i + 1 << ' ' << micro << " by " << n;
    }
}

// What a run leaves: its weights, averages, checkpoints and windows.
std::string left_by(const Config& config) {
  const RunFolder folder(config.run);
  std::string all = weights_of(config);
  for (const std::int64_t step : folder.checkpoint_steps()) all += concat(' ', step);
  for (const std::string section : {"callback.swa", "callback.ema"}) {
    const std::string path = folder.checkpoint(folder.checkpoint_steps().back());
    for (const TensorPart& part :
         ExtentReader(path, read_manifest(path)).read(section, Context::create({.threads = 1})))
      for (const double number : doubles(part.values)) all += concat(' ', number);
  }
  const std::string trace = read_text_file(folder.trace_of(0));
  std::int64_t steps = 0;
  for (std::size_t at = trace.find("backward"); at != std::string::npos; at = trace.find("backward", at + 1)) ++steps;
  return concat(all, " recorded ", steps);
}

// An epoch has 4 of the run's 10 steps.
TEST(Epochs, AndPartsOfTheRunAreTheStepsThatTheyHave) {
  const TemporaryFolder place;
  const auto left = [&](const char* run, int n, std::vector<std::string> more) {
    more.insert(more.end(), {"checkpoint={every: 1, keep: 1}", "ema.decay=0.5"});
    const Config config = line_run(place, run, std::move(more));
    train_by(n, config);
    return left_by(config);
  };
  for (const int n : {1, 2}) {
    const std::string steps = left(n == 1 ? "a" : "b", n,
                                   {"swa={start: 4, every: 2, rate_factor: 0.5}", "checkpoint.keep_every=4",
                                    "profile={start: 5, steps: 3}", "log.memory_growth=4"});
    EXPECT_EQ(left(n == 1 ? "c" : "d", n,
                   {"swa={start: 1 epoch, every: 0.5 epochs, rate_factor: 0.5}", "checkpoint.keep_every=epoch",
                    "profile={start: 1.25 epochs, steps: 0.75 epochs}", "log.memory_growth=1ep"}),
              steps);
    EXPECT_EQ(left(n == 1 ? "e" : "f", n,
                   {"swa={start: 40%, every: 20%, rate_factor: 0.5}", "checkpoint.keep_every=40%",
                    "profile={start: 50%, steps: 30%}", "log.memory_growth=40%"}),
              steps);
  }
}

TEST(Epochs, GoOnWhereThereAreMoreOfThem) {
  const TemporaryFolder place;
  train_by(1, line_run(place, "run", {"scheduler={type: constant}"}));
  Recorder done;
  EXPECT_EQ(train(line_run(place, "run", {"resume=auto", "scheduler={type: constant}"}), done).step, 10);
  EXPECT_NE(done.messages.find("it has 10 steps, and the run has 10; to go on, raise epochs"), std::string::npos)
      << done.messages;
  Recorder more;
  EXPECT_EQ(train(line_run(place, "run", {"resume=auto", "epochs=3", "scheduler={type: constant}"}), more).step, 12);
}

TEST(Epochs, AreRefusedWhereTheDataHasNone) {
  const TemporaryFolder place;
  const auto refusal = [&](const char* key) {
    TrainObserver silent;
    return error_of([&] { train(small_run(place, "run", {key}), silent); });
  };
  const std::string why = ": this data has no epochs, as its rows are drawn without end; give steps instead of epochs";
  EXPECT_EQ(refusal("eval.every=1 epoch"), "eval.every" + why);
  EXPECT_EQ(refusal("checkpoint.every=0.5ep"), "checkpoint.every" + why);
  EXPECT_EQ(refusal("swa.start=1 epoch"), "swa.start" + why);
  EXPECT_EQ(refusal("curriculum={type: fixed_discrete, lengths: [4, 16], until: [2 epochs]}"),
            "curriculum.until" + why);
  EXPECT_EQ(refusal("tracker={type: csv, every: 1 epoch}"), "tracker: csv: every" + why);
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
  EXPECT_NE(error_of([&] { line_run(place, "run", {"steps=4"}); }).find("applies only when epochs is 0"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              line_run(place, "run", {"scheduler.warmup=11", "epochs=1"});
              TrainObserver silent;
              train(line_run(place, "run", {"scheduler.warmup=11", "epochs=1"}), silent);
            }).find("with 4 steps in 1 epochs"),
            std::string::npos);
}

TEST(Epochs, OfAKeyAreHeldToItsLimits) {
  const TemporaryFolder place;
  TrainObserver silent;
  EXPECT_NE(
      error_of([&] {
        train(line_run(place, "run", {"epochs=3000", "profile.steps=2501 epochs"}), silent);
      })
          .find("profile.steps: expects a whole number from 0 to 10000, epochs as in 0.5 epochs, or a part of the "
                "run as in 10%, and 2501 epochs are 10004 steps"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
}

}  // namespace
}  // namespace keel
