// A student and its teacher, a frozen model of the task: through `train`, in every stage and at any number of ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/nn/layers.h"
#include "keel/runtime/random.h"
#include "keel/trainer/compare.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/run_plan.h"
#include "tests/error_of.h"
#include "tests/trainer/lost_groups.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

struct TeacherBlock : Module {
  explicit TeacherBlock(std::int64_t width) : inner(width, width) {}
  Linear inner;
  Variable operator()(const Variable& x) const {
    const Scope scope(*this);
    return add(x, tanh(inner(x)));
  }
  void visit(Visitor& v) override { v("inner", inner); }
  bool is_unit() const override { return true; }
};

// Units between two layers of the root.
struct TeacherNet : Module {
  TeacherNet(std::int64_t width, int count) : first(2, width), last(width, 2) {
    for (int i = 0; i < count; ++i) blocks.emplace_back(width);
  }
  Linear first, last;
  std::vector<TeacherBlock> blocks;
  Variable operator()(const Variable& x) const {
    const Scope scope(*this);
    Variable y = tanh(first(x));
    for (const TeacherBlock& block : blocks) y = block(y);
    return last(y);
  }
  void visit(Visitor& v) override {
    v("first", first);
    v("blocks", blocks);
    v("last", last);
  }
};

// Places, and which of two classes each belongs to.
DatasetPtr teacher_points() {
  return made_dataset(64, "points", [](std::int64_t i) {
    const std::vector<float> place = drawn_numbers("place", 3, i, 2);
    return Example()
        .set("place", Numbers{{2}, place})
        .set("kind", Numbers{{}, {place[0] * place[1] > 0.25F ? 1.0F : 0.0F}});
  });
}

// Learns the classes with a large net, without a teacher or from one.
class Pupil : public Task {
 public:
  explicit Pupil(const TaskSite& site)
      : site_(site),
        path_(site.settings.text("task.teacher")),
        is_taught_(path_ != "none"),
        way_(site.settings.text("task.way")),
        student_(is_taught_ ? 6 : 12, is_taught_ ? 1 : 2) {}
  Module& model() override { return student_; }
  Teacher teacher() override { return is_taught_ ? Teacher{&teacher_, path_} : Teacher{}; }
  Data data() override { return make_data(site_, teacher_points(), 0.25, stack()); }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable place = input(batch, "place", pass), own = student_(place);
    if (!is_taught_) return cross_entropy(own, kinds(batch));
    // What the teacher makes of places that the student moves: gradients flow through the frozen model.
    if (way_ == "through") return mse_loss(teacher_(own), teacher_(place).detach());
    const Forward quiet = pass.evaluating();
    EXPECT_FALSE(quiet.training || quiet.observes);
    const Variable wanted = [&] {
      const NoGrad no_grad;
      return softmax(teacher_(place));
    }();
    Loss loss;
    loss.add("distillation", neg(mean(sum(mul(wanted, log_softmax(own)), {-1}))), "rows", 0.75);
    loss.add("kinds", cross_entropy(own, kinds(batch)), "rows", 0.25);
    return loss;
  }

 private:
  static Tensor kinds(const Batch& batch) {
    std::vector<std::int64_t> kinds;
    for (const float kind : batch["kind"].to_vector<float>()) kinds.push_back(kind > 0.5F ? 1 : 0);
    return from_values(batch["kind"].context(), kinds, {std::ssize(kinds)}, Purpose::workspace);
  }

  TaskSite site_;
  std::string path_;
  bool is_taught_;
  std::string way_;
  TeacherNet student_, teacher_{12, 2};
};

const std::shared_ptr<const ConfigKeys>& teacher_keys() {
  static const auto keys = keys_of_task<Pupil>("pupil", {{.key = "task.teacher",
                                                          .type = KeyType::path,
                                                          .standard = "none",
                                                          .help = "Weights of a teacher.",
                                                          .on_resume = ResumeRule::ignores},
                                                         {.key = "task.way",
                                                          .type = KeyType::choice,
                                                          .standard = "beside",
                                                          .help = "How.",
                                                          .choices = "beside|through"}});
  return keys;
}

Config pupil(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  return task_run(teacher_keys(), R"(
steps: 8
batch: {global: 12, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 4}
checkpoint: {every: 5}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

// A folder with a teacher's run.
std::string with_teacher(const TemporaryFolder& place, int ranks = 1, std::vector<std::string> more = {}) {
  train_by(ranks, pupil(place, "teacher", std::move(more)));
  return concat("task.teacher=", place / "teacher");
}

std::string error_of_run(const Config& config) {
  return error_of([&] {
    TrainObserver silent;
    train(config, silent);
  });
}

TEST(Teacher, TeachesAlikeInEveryStageAtAnyNumberOfRanksAndAfterAResume) {
  for (const char* way : {"task.way=beside", "task.way=through"})
    for (const int n : {1, 2, 3, 4}) {
      if (n == 1 && std::string_view(way) == "task.way=through") continue;  // nothing is gathered there
      const TemporaryFolder place;
      const std::string teacher = with_teacher(place, 5 - n, {"strategy=zero3-fp32"});
      expect_one_training_in_all_stages(n, [&](const std::string& run, std::vector<std::string> more) {
        more.insert(more.end(), {teacher, way, "sharding.prefetch=1"});
        return pupil(place, run, std::move(more));
      });
    }
}

// Its weights are divided inside groups, so those that are left have all of them.
TEST(Teacher, TeachesTheGroupsThatAreLeftOfOneThatIsLost) {
  for (const int victim : {3, 0})
    for (const char* way : {"task.way=beside", "task.way=through"}) {
      SCOPED_TRACE(concat(victim, ' ', way));
      const TemporaryFolder place;
      const std::string teacher = with_teacher(place, 3, {"strategy=zero3-fp32"});
      std::string weights, longer_weights;
      for (const std::string stage : {"zero1", "zero3"}) {
        std::vector<std::string> settings = dropping("{type: diloco, every: 2}", 2);
        settings.insert(settings.end(), {teacher, way, "sharding.prefetch=1", concat("strategy=", stage, "-fp32")});
        const Config config = pupil(place, stage, settings);
        const Ended ended = train_until_death(4, config, {victim, 0, 4});
        ASSERT_EQ(ended.left(), victim == 0 ? (std::set<int>{2, 3}) : (std::set<int>{0, 1}))
            << ended.errors[0] << ended.errors[2];
        expect_whole_run(config, ended, victim / 2, stage);
        const std::string found = weights_of(config);
        settings.insert(settings.end(), {"resume=auto", "steps=12"});
        train_by(4, pupil(place, stage, settings));
        if (stage == "zero3") {
          EXPECT_TRUE(found == weights);
          EXPECT_TRUE(weights_of(config) == longer_weights);
        }
        weights = found;
        longer_weights = weights_of(config);
      }
    }
}

TEST(Teacher, ComesFromAFileShardsACheckpointOrARunAndIsNotSaved) {
  const TemporaryFolder place;
  const std::string teacher = with_teacher(place);
  const RunFolder folder(place / "teacher");
  const std::string shards = place / "shards", index = concat(shards, '/', kShardIndex);
  EXPECT_GT(export_shards(folder.checkpoint(8), read_manifest(folder.checkpoint(8)), shards, 100), 2u);
  int number = 0;
  std::string bits;
  for (const std::string& path : {folder.path(), folder.checkpoint(8), folder.model(), shards, index}) {
    const Config config = pupil(place, concat("pupil", ++number), {concat("task.teacher=", path)});
    train_by(1, config);
    if (bits.empty()) bits = weights_of(config);
    EXPECT_TRUE(weights_of(config) == bits) << path;
    for (const StoredTensor& tensor : read_manifest(RunFolder(config.run).checkpoint(8)).tensors)
      EXPECT_EQ(tensor.name.find("blocks.1"), std::string::npos) << tensor.name;
  }
  EXPECT_FALSE(weights_of(pupil(place, "teacher")) == bits);
  const Config other = pupil(place, "other", {concat("task.teacher=", folder.checkpoint(5))});
  train_by(1, other);
  EXPECT_FALSE(weights_of(other) == bits) << "what the teacher says counts";
}

TEST(Teacher, ThatIsAnotherOneAtAResumeIsRefusedAndTheRunIsAsItWas) {
  const TemporaryFolder place;
  const std::string teacher = with_teacher(place);
  train_by(1, pupil(place, "run", {teacher}), 5);
  const std::string before = read_text_file(RunFolder(place / "run").metrics());
  const std::string refusal = error_of_run(
      pupil(place, "run", {concat("task.teacher=", place / "teacher/checkpoints/step-00000005"), "resume=auto"}));
  EXPECT_NE(refusal.find("the frozen model 'teacher' has other weights, in '"), std::string::npos) << refusal;
  EXPECT_EQ(read_text_file(RunFolder(place / "run").metrics()), before);
  // Its run has gone on.
  train_by(1, pupil(place, "teacher", {"steps=10", "resume=auto"}));
  EXPECT_NE(error_of_run(pupil(place, "run", {teacher, "resume=auto"})).find("other weights"), std::string::npos);
}

TEST(Teacher, ThatCannotBeIsAnErrorBeforeAnythingIsWritten) {
  const TemporaryFolder place;
  with_teacher(place);
  write_text_file(place / "no.safetensors", "no");
  std::filesystem::create_directory(place / "empty");
  train_by(1, pupil(place, "small", {concat("task.teacher=", place / "teacher")}));
  const auto refusal = [&](const std::string& path) {
    std::string told;
    run_ranks(2, [&](Communicator& ranks) {
      TrainObserver silent;
      const std::string mine =
          error_of([&] { train(pupil(place, "run", {concat("task.teacher=", path)}), silent, ranks); });
      if (ranks.rank() == 1) told = mine;
    });
    EXPECT_FALSE(std::filesystem::exists(RunFolder(place / "run").metrics()));
    return told;
  };
  const std::string nowhere = refusal(place / "nowhere");
  EXPECT_NE(nowhere.find("the frozen model 'teacher': "), std::string::npos) << nowhere;
  EXPECT_NE(nowhere.find("there are no weights in '"), std::string::npos) << nowhere;
  EXPECT_NE(refusal(place / "empty").find("' is neither a checkpoint nor the folder of a run"), std::string::npos);
  const std::string checkpoint = RunFolder(place / "teacher").checkpoint(8), shards = place / "shards";
  const std::size_t count = export_shards(checkpoint, read_manifest(checkpoint), shards, 100);
  std::filesystem::remove(concat(shards, '/', shard_name(2, count)));
  EXPECT_NE(refusal(shards).find(concat("names the file '", shard_name(2, count), "', which is not there")),
            std::string::npos);
  export_shards(RunFolder(place / "small").checkpoint(8), read_manifest(RunFolder(place / "small").checkpoint(8)),
                shards, 100, IfExists::replace);
  EXPECT_NE(refusal(shards).find("has weights of another model"), std::string::npos);
  EXPECT_NE(refusal(place / "no.safetensors").find("the frozen model 'teacher': "), std::string::npos);
  EXPECT_NE(refusal(place / "small").find("has weights of another model"), std::string::npos);
}

TEST(Teacher, NeedsWhatItsPlanSaysAndNeitherGradientsNorState) {
  const TemporaryFolder place;
  const std::string teacher = with_teacher(place);
  const Config alone = pupil(place, "run"), taught = pupil(place, "run", {teacher});
  const auto plan = [](Config config, int ranks, Strategy::Stage stage) {
    config.strategy.stage = stage;
    config.strategy.precision = Strategy::Precision::fp32;
    return plan_run(config, *make_task(config), ranks).memory;
  };
  for (const int n : {1, 4})
    for (const Strategy::Stage stage : {Strategy::Stage::ddp, Strategy::Stage::zero3}) {
      TeacherNet student(6, 1), large(12, 2);
      Config config = taught;
      config.strategy = {.stage = stage, .precision = Strategy::Precision::fp32};
      const MemoryPlan own = plan_run(config, student, n).memory, whole = plan(taught, n, stage),
                       teachers = plan(alone, n, stage);
      EXPECT_EQ(whole.parameter, own.parameter + teachers.parameter);
      EXPECT_EQ(whole.gradient, own.gradient);
      EXPECT_EQ(whole.optimizer, own.optimizer);
      EXPECT_EQ(whole.checkpoint, own.checkpoint);
    }
  std::vector<ComparedRun> runs;
  run_ranks(3, [&](Communicator& ranks) {
    TrainObserver silent;
    CompareAxes axes;
    axes.strategies = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"};
    const std::vector<ComparedRun> all = compare(variants_of(taught, axes), {.steps = 3, .repeats = 1}, silent, ranks);
    if (ranks.rank() == 0) runs = all;
  });
  ASSERT_EQ(runs.size(), 4U);
  for (const ComparedRun& run : runs) {
    EXPECT_EQ(run.fingerprint, runs.front().fingerprint) << run.name;
    EXPECT_EQ(run.sent, run.sent_by_formula) << run.name;
    EXPECT_EQ(run.kept, run.kept_by_formula) << run.name;
  }
}

TEST(Teacher, SendsInAStepWhatItsPlanSays) {
  const TemporaryFolder place;
  const std::string teacher = with_teacher(place, 1, {"steps=1", "eval.every=0", "scheduler={type: constant}"});
  for (const char* stage : {"ddp", "zero3"}) {
    const Config config =
        pupil(place, stage,
              {teacher, concat("strategy=", stage, "-fp32"), "steps=3", "eval.every=0", "scheduler={type: constant}"});
    train_by(2, config);
    std::int64_t sent = 0;  // in the last step
    for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
      if (record.contains("sent_bytes")) sent = record.at("sent_bytes").integer();
    EXPECT_EQ(sent, plan_run(config, *make_task(config), 2).traffic.sent()) << stage;
  }
}

TEST(Teacher, SendsNoneOfTheWordsThatGoWithAStep) {
  const TemporaryFolder place;
  for (const int n : {2, 3}) {
    const auto words = [&](const char* teacher) {
      const Config config = pupil(place, "run", {concat("task.teacher=", teacher)});
      return plan_run(config, *make_task(config), n).traffic.control;
    };
    EXPECT_GT(words("none"), 0);
    EXPECT_EQ(words("some.safetensors"), words("none")) << n;
  }
}

TEST(Teacher, IsAskedWhereItsStudentIsEvaluated) {
  const TemporaryFolder place;
  const std::string teacher = with_teacher(place);
  const Config config = pupil(place, "run", {teacher});
  train_by(1, config);
  double told = 0;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains("validation_loss")) told = record.at("validation_loss").number();
  for (const int n : {1, 2})
    run_ranks(n, [&](Communicator& ranks) {
      TrainedModel trained({.path = config.run, .strategy = "zero3", .keys = teacher_keys()}, ranks,
                           [](LogLevel, std::string_view) {});
      const std::vector<NamedNumber> values = evaluate_run(trained, "").sets.front().values;
      EXPECT_EQ(std::ranges::find(values, "validation_loss", &NamedNumber::name)->value, told);
    });
}

}  // namespace
}  // namespace keel
