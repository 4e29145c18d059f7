// A task that keel does not have: every stage, number of ranks and division into micro-batches trains it alike.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/runtime/random.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/compare.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/generate.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/trained_model.h"
#include "tests/error_of.h"
#include "tests/names_of.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// Points of the plane, and a wave over them.
DatasetPtr waves(std::int64_t points, std::uint64_t seed) {
  return made_dataset(points, concat("waves ", seed), [seed](std::int64_t i) {
    std::vector<float> place(2);
    fill_uniform(place, seed, "place", static_cast<std::uint64_t>(2 * i));
    Example example;
    example.set("place", Numbers{{2}, place});
    example.set("height", Numbers{{1}, {std::sin(3 * place[0]) * place[1]}});
    return example;
  });
}

// Rows, and a weight of them: how far the water rises above the calm sea.
Collator with_crests() {
  return [each = stack()](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
    each(rows, info, batch);
    double crests = 0;
    for (const double height : doubles(batch["height"])) crests += std::max(height, 0.0);
    batch.set_weight("crests", crests);
  };
}

class Fit : public Task {
 public:
  explicit Fit(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    const std::int64_t points = site_.settings.integer("task.points");
    if (points == 0) return {};
    Data data = make_data(site_, waves(points, 1), 0.25, with_crests());
    const std::int64_t others = site_.settings.integer("task.others");
    if (others > 0)
      data.validation.push_back({"others", make_source(site_.host, waves(others, 2),
                                                       sequential(others, site_.validation_rows), with_crests())});
    data.note = "waves are taken for what they are";
    data.files = {{"waves.txt", concat(points, '\n')}};
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable height = net_(input(batch, "place", pass), pass), wanted = input(batch, "height", pass);
    if (site_.settings.text("task.terms") == "one") return mse_loss(height, wanted);
    Loss loss;
    loss.add("fit", mse_loss(height, wanted), "rows");
    if (site_.settings.text("task.terms") == "weighted") {
      const Variable crests = relu(wanted);
      loss.add_sum("crests", sum(mul(square(sub(height, wanted)), crests)), "crests", 0.5);
      return loss.log("waves", mean(abs(height)).value(), "crests");
    }
    loss.add("distance", mean(abs(sub(height, wanted))), "rows", 0.5);
    loss.add_regularizer("size", mean(square(height)), 1e-2);
    return loss;
  }
  std::vector<std::string> notes() override { return {"the sea is calm"}; }

 private:
  TaskSite site_;
  Mlp net_{{2, 24, 24, 1}, ActivationKind::tanh};
};

const std::shared_ptr<const ConfigKeys>& keys() {
  static const auto made = keys_of_task<Fit>(
      "fit", {{.key = "task.points", .type = KeyType::integer, .standard = "96", .help = "Points.", .low = 0},
              {.key = "task.others", .type = KeyType::integer, .standard = "0", .help = "Other points.", .low = 0},
              {.key = "task.terms",
               .type = KeyType::choice,
               .standard = "one",
               .help = "Of the loss.",
               .choices = "one|three|weighted"}});
  return made;
}

Config fit_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  return task_run(keys(), R"(
steps: 9
batch: {global: 12, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 3}
checkpoint: {every: 4}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

TEST(OwnTask, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  // Of 35 points, an epoch's last step has two rows: fewer than there are ranks.
  for (const auto& [terms, points] : {std::pair("task.terms=one", "task.points=96"),
                                      {"task.terms=three", "task.points=96"},
                                      {"task.terms=weighted", "task.points=35"}})
    for (const int n : {1, 2, 3, 4}) {
      const TemporaryFolder place;
      expect_one_training_in_all_stages(
          n, [&, terms = terms, points = points](const std::string& run, std::vector<std::string> more) {
            more.insert(more.end(), {terms, points});
            return fit_run(place, run, more);
          });
    }
}

TEST(OwnTask, LearnsInNumbersOf16Bits) {
  const TemporaryFolder place;
  for (const char* strategy : {"ddp-bf16", "zero3-bf16", "zero2-fp16"}) {
    Recorder told;
    train(fit_run(place, strategy, {concat("strategy=", strategy), "steps=150", "eval.every=150"}), told);
    EXPECT_LT(told.losses.back(), 0.3 * told.losses.front()) << strategy;
  }
}

// No rank divides a batch, so all have the sums of one process to the bit.
TEST(OwnTask, IsEvaluatedAlikeByAnyNumberOfRanks) {
  for (const auto& [others, terms, names] :
       {std::tuple(1, "three", 8), {7, "three", 8}, {1001, "three", 8}, {7, "weighted", 6}}) {
    const TemporaryFolder place;
    std::vector<NamedNumber> alone;
    for (const int n : {1, 2, 3, 4}) {
      const Config config = fit_run(place, concat("run", n),
                                    {"optimizer.lr=1e-30", "steps=1", concat("task.terms=", terms), "task.points=16",
                                     concat("task.others=", others)});
      run_ranks(n, [&, names = names](Communicator& ranks) {
        TrainObserver silent;
        const std::vector<NamedNumber> values = train(config, silent, ranks).evaluation->values;
        if (n == 1) alone = values;
        ASSERT_EQ(std::ssize(values), names);
        for (std::size_t i = 0; i < values.size(); ++i) {
          EXPECT_EQ(values[i].name, alone[i].name);
          EXPECT_EQ(values[i].value, alone[i].value) << values[i].name << " by " << n << " ranks";
        }
      });
    }
    EXPECT_TRUE(alone.back().name.starts_with("others/"));
    if (names != 6) continue;
    const auto value = [&](std::string_view name) { return std::ranges::find(alone, name, &NamedNumber::name)->value; };
    EXPECT_DOUBLE_EQ(value("others/loss"), value("others/fit") + 0.5 * value("others/crests"));
  }
}

TEST(OwnTask, HasItsTermsAndWhatItLogsInRecords) {
  const TemporaryFolder place;
  const Config config = fit_run(place, "run", {"task.terms=weighted"});
  const std::vector<std::unique_ptr<Recorder>> told = train_by(2, config);
  std::size_t steps = 0;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics())) {
    if (!record.contains("lr")) continue;
    EXPECT_DOUBLE_EQ(record.at("loss").number(),
                     record.at("train/fit").number() + 0.5 * record.at("train/crests").number());
    EXPECT_GT(record.at("train/waves").number(), 0);
    EXPECT_EQ(record.at("loss").number(), told[0]->losses[steps++]);
  }
  EXPECT_EQ(steps, 9u);
}

TEST(OwnTask, IsToldInItsOwnWords) {
  const TemporaryFolder place;
  Recorder told;
  const Config config = fit_run(place, "run", {"task.terms=three", "task.others=5"});
  train(config, told);
  EXPECT_NE(told.messages.find("waves are taken for what they are\n"), std::string::npos) << told.messages;
  EXPECT_NE(told.messages.find("the sea is calm\n"), std::string::npos) << told.messages;
  EXPECT_EQ(read_text_file(RunFolder(config.run).file("waves.txt")), "96\n");
  const std::vector<Json> records = read_metrics(RunFolder(config.run).metrics());
  EXPECT_EQ(records.front().at("rows").integer(), 12);
  EXPECT_TRUE(records.front().contains("rows_per_s"));
  EXPECT_FALSE(records.front().contains("tokens"));
  std::string evaluated;
  for (const Json& record : records)
    if (record.contains("validation_loss"))
      for (const char* name : {"fit", "distance", "size", "others/loss", "others/fit"})
        evaluated += record.contains(name) ? "y" : "n";
  EXPECT_EQ(evaluated, "yyyyyyyyyyyyyyy");
}

TEST(OwnTask, IsRefusedWhatItCannotDo) {
  const TemporaryFolder place;
  const auto refusal = [&](const std::vector<std::string>& more) {
    TrainObserver silent;
    return error_of([&] { train(fit_run(place, "run", more), silent); });
  };
  EXPECT_EQ(refusal({"task.points=0"}), "the task fit has no data to train on");
  EXPECT_EQ(refusal({"cuda_graph=true"}), "cuda_graph: the task does not say that it can be recorded");
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
  train_by(1, fit_run(place, "run"), 4);
  EXPECT_EQ(error_of([&] {
              generate(
                  {.run = place / "run", .prompt = "x"}, [](std::string_view) {}, keys());
            }),
            "this task does not continue texts");
  EXPECT_NE(refusal({"resume=auto", "task.points=97"}).find("another waves.txt than the data gives now"),
            std::string::npos);
  // The run is of another task.
  const std::string other = error_of([&] {
    TrainObserver silent;
    train(parse_config(keys(), "steps: 9\ntask: {type: language}\ndata: {type: addition}\n", "c.yaml",
                       {concat("run=", place / "run"), "resume=auto"}),
          silent);
  });
  EXPECT_NE(other.find("is a checkpoint of the task fit, not of language"), std::string::npos) << other;
  // Another program, without it: one line, whatever the run has.
  std::string told;
  const auto ask = [&](Communicator& ranks) {
    TrainedModel({.path = place / "run"}, ranks, [&](LogLevel, std::string_view text) { told += concat(text, '\n'); });
  };
  const std::string lacks = concat("' is of the task 'fit', which this program does not have; it has ",
                                   testing::task_names(), ". Ask the program that trained it"),
                    by_checkpoint = error_of([&] { run_ranks(1, ask); }),
                    by_model =
                        error_of([&] { generate({.run = place / "run", .prompt = "x"}, [](std::string_view) {}); });
  EXPECT_EQ(told, "");
  for (const std::string& each : {by_checkpoint, by_model})
    EXPECT_TRUE(each.ends_with(lacks) && each.find('\n') == std::string::npos) << each;
  // Though it lists the checkpoints, and finds the weights.
  const CheckpointList list = list_checkpoints(place / "run");
  EXPECT_FALSE(list.is_damaged());
  EXPECT_EQ(list.checkpoints.back().unknown, "the task 'fit'");
  EXPECT_EQ(list.next()->path,
            find_checkpoint(place / "run", std::nullopt, [](std::string_view what) { FAIL() << what; }).path);
}

class SeenTerms : public Callback {
 public:
  std::string_view name() const override { return "seen_terms"; }
  void step_end(LoopView& view) override { by_step[view.state().known] = view.state().terms; }
  std::map<std::int64_t, std::map<std::string, double, std::less<>>> by_step;
};

TEST(OwnTask, ShowsCallbacksOfAllRanksTheTermsThatRecordsHave) {
  const TemporaryFolder place;
  const Config config = fit_run(place, "run", {"task.terms=weighted"});
  std::vector<std::shared_ptr<SeenTerms>> seen = {std::make_shared<SeenTerms>(), std::make_shared<SeenTerms>()};
  run_ranks(2, [&](Communicator& ranks) {
    TrainObserver silent;
    train(config, silent, ranks, {seen[static_cast<std::size_t>(ranks.rank())]});
  });
  EXPECT_EQ(seen[0]->by_step, seen[1]->by_step);
  int steps = 0;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics())) {
    if (!record.contains("train/fit")) continue;
    const auto& terms = seen[0]->by_step.at(record.at("step").integer());
    EXPECT_EQ(terms.size(), 3u);
    for (const auto& [name, value] : terms) EXPECT_EQ(record.at(concat("train/", name)).number(), value) << name;
    ++steps;
  }
  EXPECT_EQ(steps, 9);
}

TEST(OwnTask, IsComparedInAllStages) {
  const TemporaryFolder place;
  const Config config = fit_run(place, "run", {"task.terms=three"});
  std::vector<ComparedRun> runs;
  run_ranks(2, [&](Communicator& ranks) {
    TrainObserver silent;
    CompareAxes axes;
    axes.strategies = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"};
    const std::vector<ComparedRun> all = compare(variants_of(config, axes), {.steps = 3, .repeats = 1}, silent, ranks);
    if (ranks.rank() == 0) runs = all;
  });
  ASSERT_EQ(runs.size(), 4u);
  for (const ComparedRun& run : runs) {
    EXPECT_EQ(run.fingerprint, runs.front().fingerprint) << run.name;
    EXPECT_EQ(run.sent, run.sent_by_formula) << run.name;
    EXPECT_EQ(run.kept, run.kept_by_formula) << run.name;
  }
}

TEST(OwnTask, HasNoKeysOfAnotherTask) {
  const auto told = [](std::string_view yaml) { return error_of([&] { parse_config(keys(), yaml, "c.yaml"); }); };
  EXPECT_EQ(told("steps: 1\nmodel: {layers: 2}"),
            "c.yaml:2: unknown key 'model.layers'; `keel train --help-config` lists all keys");
  EXPECT_EQ(told("steps: 1\ntask: {type: language, points: 3}\ndata: {type: addition}"),
            "c.yaml:2: unknown key 'task.points'; task has type");
  EXPECT_EQ(told("steps: 1\ntask: {type: fits}"),
            concat("c.yaml:2: task.type: expects ", testing::task_names(), " or fit, got 'fits'; did you mean 'fit'?"));
  EXPECT_EQ(told("steps: 1\ntask: {type: fit, pionts: 3}"),
            "c.yaml:2: unknown key 'task.pionts', did you mean 'task.points'?");
  EXPECT_EQ(parse_config(keys(), "steps: 1", "c").task, "fit") << "a program's own comes first";
  EXPECT_EQ(
      parse_config(keys(), "steps: 1\ntask: {type: fit}", "c", {"task.type=language", "data={type: addition}"}).task,
      "language");
}

TEST(TaskCatalog, ListsEverythingThatIsWrongWithAProgramsTasks) {
  const auto told = [](std::vector<TaskEntry> own) { return error_of([&] { const ConfigKeys made(own); }); };
  TaskEntry fine = task_entry<Fit>("fit", "a wave");
  EXPECT_EQ(told({fine}), "");
  TaskEntry unnamed = fine, keels = fine, silent = fine, unmade = fine, clash = fine;
  unnamed.name = "a-b";
  keels.name = "language";
  silent.name = "silent";
  silent.summary = "";
  unmade.name = "unmade";
  unmade.make = nullptr;
  clash.name = "clash";
  clash.rows = {{.key = "data.seed", .type = KeyType::integer, .standard = "1", .help = "A seed."}};
  EXPECT_EQ(told({fine, fine, unnamed, keels, silent, unmade, clash}),
            "the program's tasks: task 'fit': there is one of this name already\n"
            "task 'a-b': a name is letters, digits and _\n"
            "task 'language': there is one of this name already\n"
            "task 'silent': needs a summary of one line\n"
            "task 'unmade': has no function that makes it\n"
            "task 'clash': data.seed: there is a key of this name already");
}

// A model without weights, or with frozen ones alone.
template <bool has_layer>
class Constant : public Task {
 public:
  explicit Constant(const TaskSite& site) : site_(site) {
    for (const Parameter* each : {&net_.layer.weight, &net_.layer.bias}) each->set_trainable(false);
  }
  Module& model() override { return net_; }
  Data data() override { return make_data(site_, waves(12, 1), 0.25, stack()); }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return mse_loss(mean(input(batch, "place", pass)), mean(input(batch, "height", pass)));
  }

 private:
  struct Net : Module {
    Linear layer{2, 1};
    void visit(Visitor& v) override {
      if (has_layer) v("layer", layer);
    }
  };
  TaskSite site_;
  Net net_;
};

TEST(OwnTask, WithNothingToTrainIsRefusedInItsFirstStep) {
  const TemporaryFolder place;
  const auto said = [&](const auto& keys, int n, const std::string& run) {
    const Config config =
        task_run(keys, "{steps: 2, batch: {global: 4, micro: 2}, scheduler: {type: constant}, threads: 1}", place, run,
                 {"strategy=zero2-fp32", "eval.at_start=true"});
    return error_of([&] { train_by(n, config); });
  };
  const auto none = keys_of_task<Constant<false>>("none"), frozen = keys_of_task<Constant<true>>("frozen");
  for (const int n : {1, 2}) {
    EXPECT_EQ(said(none, n, concat("none", n)), "the loss does not depend on any trained parameter");
    EXPECT_EQ(said(frozen, n, concat("frozen", n)), "the loss does not depend on any trained parameter");
  }
}

}  // namespace
}  // namespace keel
