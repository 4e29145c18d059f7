#pragma once
// What tests of tasks of their own share: examples that a function makes, a program with one task, and its runs.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/random.h"
#include "keel/tasks/catalog.h"
#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"
#include "tests/temporary_folder.h"
#include "tests/trainer/run_support.h"

namespace keel::testing {

class MadeDataset : public Dataset {
 public:
  using Maker = std::function<Example(std::int64_t i)>;
  MadeDataset(std::int64_t size, std::string name, Maker maker)
      : size_(size), name_(std::move(name)), maker_(std::move(maker)) {}
  std::int64_t size() const override { return size_; }
  Example example(std::int64_t i) const override {
    check_index(i);
    return maker_(i);
  }
  std::string fingerprint() const override { return concat(name_, ' ', size_); }

 private:
  std::int64_t size_;
  std::string name_;
  Maker maker_;
};

// Equal names mean equal examples.
inline DatasetPtr made_dataset(std::int64_t size, const std::string& name, MadeDataset::Maker maker) {
  return std::make_shared<MadeDataset>(size, name, std::move(maker));
}

// The keys of a program whose one task this is.
template <class T>
std::shared_ptr<const ConfigKeys> keys_of_task(std::string_view name, std::vector<KeyRow> rows = {},
                                               std::vector<std::string_view> stacks = {}) {
  const TaskEntry entry = task_entry<T>(name, "a task of a test", std::move(rows), std::move(stacks));
  return std::make_shared<const ConfigKeys>(std::span(&entry, 1));
}

// A run of that program in folder `run` of `place`.
inline Config task_run(const std::shared_ptr<const ConfigKeys>& keys, std::string_view yaml,
                       const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), concat("run=", place / run));
  return parse_config(keys, yaml, "task.yaml", more);
}

// `count` numbers in [0, 1) of example i.
inline std::vector<float> drawn_numbers(const std::string& name, std::uint64_t seed, std::int64_t i,
                                        std::size_t count) {
  std::vector<float> numbers(count);
  fill_uniform(numbers, seed, name, count * static_cast<std::uint64_t>(i));
  return numbers;
}

// Trains by n ranks in every stage, and by zero1 until a signal in a step, of which several ranks hear with the step
// after it, and then by zero3, which does the steps that are left: what `bits_of` says is the same.
// `run`: its name, and what is said of it.
inline void expect_one_training_in_all_stages(
    int n, const std::function<Config(const std::string& run, std::vector<std::string> more)>& run,
    std::int64_t signal = 5, const std::function<std::string(const Config&)>& bits_of = weights_of) {
  constexpr const char* kStages[] = {"ddp", "zero1", "zero2", "zero3"};
  const auto in_stage = [](const char* stage) { return concat("strategy=", stage, "-fp32"); };
  for (const char* stage : kStages) train_by(n, run(stage, {in_stage(stage)}));
  const std::string bits = bits_of(run(kStages[0], {}));
  for (const char* stage : kStages) EXPECT_TRUE(bits_of(run(stage, {})) == bits) << stage << ' ' << n;
  train_by(n, run("resumed", {in_stage("zero1")}), signal);
  const std::int64_t done = RunFolder(run("resumed", {}).run).checkpoint_steps().back();
  const Config again = run("resumed", {in_stage("zero3"), "resume=auto"});
  const auto told = train_by(n, again);
  EXPECT_EQ(std::ssize(told[0]->losses), again.steps - done) << "steps that were left";
  EXPECT_GT(done, 0);
  EXPECT_TRUE(bits_of(run("resumed", {})) == bits) << n;
}

}  // namespace keel::testing
