// Steps that find no memory.

#include <gtest/gtest.h>

#include <atomic>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/runtime/out_of_memory.h"
#include "keel/trainer/config_keys.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

DatasetPtr places() {
  return made_dataset(48, "places", [](std::int64_t i) {
    return Example().set("x", Numbers{{1}, {static_cast<float>(i % 11) / 8}});
  });
}

std::atomic<int> refusals = 0;  // of the next micro-batches

// Has memory for so many rows at once.
class Narrow : public Task {
 public:
  explicit Narrow(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override { return make_data(site_, places(), 0, stack()); }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable x = input(batch, "x", pass), out = net_(x, pass);
    Loss loss;
    loss.add("fit", mse_loss(out, x), "rows");
    if (refusals > 0 && ++micro_batches_ % 2 == 0) {  // not the first of a step, so that there are gradients already
      --refusals;
      throw OutOfMemory("out of memory on paper");
    }
    const std::int64_t room = site_.settings.integer("task.room");
    if (batch.rows() > room) throw OutOfMemory(concat("out of memory: no room for ", batch.rows(), " rows"));
    return loss;
  }

 private:
  TaskSite site_;
  int micro_batches_ = 0;
  Mlp net_{{1, 8, 1}, ActivationKind::tanh};
};

Config narrow_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<Narrow>(
      "narrow", {{.key = "task.room", .type = KeyType::integer, .standard = "100", .help = "Rows.", .low = 0}});
  return task_run(keys, R"(
steps: 6
batch: {global: 12, micro: 6}
optimizer: {lr: 1e-2}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

class MemoryEvents : public Callback {
 public:
  std::string_view name() const override { return "memory_events"; }
  void out_of_memory(LoopView& view, const std::exception& error) override {
    seen += concat(view.state().step, " on ", view.rank(), ": ", error.what(), '\n');
    throw Error("a callback that fails there is told, and the step goes on");
  }
  std::string seen;
};

std::string train_narrow(const Config& config, std::string* messages = nullptr) {
  const auto events = std::make_shared<MemoryEvents>();
  Recorder told;
  train(config, told, {events});
  if (messages != nullptr) *messages = told.messages;
  return events->seen;
}

TEST(SafeSteps, TryAgainWithTheSameBits) {
  const TemporaryFolder place;
  EXPECT_EQ(train_narrow(narrow_run(place, "plain")), "");
  refusals = 1;
  std::string messages;
  EXPECT_EQ(train_narrow(narrow_run(place, "again"), &messages), "1 on 0: out of memory on paper\n");
  EXPECT_EQ(refusals, 0);
  EXPECT_TRUE(weights_of(narrow_run(place, "again")) == weights_of(narrow_run(place, "plain")));
  EXPECT_NE(messages.find("step 1: out of memory on paper; it is tried once more (safe_steps)"), std::string::npos)
      << messages;
  EXPECT_NE(messages.find("a callback that fails there"), std::string::npos);
}

TEST(SafeSteps, DivideMicroBatchesAsIfTheyHadBeenSoFromTheStart) {
  const TemporaryFolder place;
  std::string messages;
  const Config narrow = narrow_run(place, "narrow", {"task.room=2"});
  EXPECT_EQ(train_narrow(narrow, &messages),
            "1 on 0: out of memory: no room for 6 rows\n1 on 0: out of memory: no room for 6 rows\n"
            "1 on 0: out of memory: no room for 3 rows\n");
  EXPECT_NE(messages.find("in micro-batches of 2 rows"), std::string::npos) << messages;
  train_narrow(narrow_run(place, "small", {"batch.micro=2"}));
  EXPECT_TRUE(weights_of(narrow) == weights_of(narrow_run(place, "small")));
}

TEST(SafeSteps, EndTheRunAfterSavingWhereNothingHelps) {
  const TemporaryFolder place;
  const auto failure = [&](const char* run, std::vector<std::string> more) {
    return error_of([&] { train_narrow(narrow_run(place, run, std::move(more))); });
  };
  EXPECT_EQ(failure("full", {"task.room=0"}), "out of memory: no room for 1 rows");
  EXPECT_EQ(failure("off", {"task.room=2", "safe_steps=false"}), "out of memory: no room for 6 rows");
  EXPECT_EQ(failure("bf16", {"task.room=6", "batch.micro=12", "strategy=bf16"}), "out of memory: no room for 12 rows")
      << "gradients of one micro-batch are kept in bf16, in which sums would lose digits";
  EXPECT_EQ(failure("fp32", {"task.room=6", "batch.micro=12", "strategy=fp32"}), "");
}

TEST(SafeSteps, OfSeveralRanksEndAllOfThemWithTheReason) {
  const TemporaryFolder place;
  // Rank 0 alone has a row more than the others.
  for (const auto& [n, rows, room] : {std::tuple(2, 11, 5), {3, 10, 3}}) {
    std::vector<std::string> errors(static_cast<std::size_t>(n)), events(static_cast<std::size_t>(n));
    const Config config =
        narrow_run(place, concat("run", n),
                   {"strategy=zero3-fp32", concat("batch.global=", rows), "batch.micro=6", concat("task.room=", room)});
    const auto train_one = [&](Communicator& ranks) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      const auto callback = std::make_shared<MemoryEvents>();
      Recorder told;
      try {
        train(config, told, ranks, {callback});
      } catch (const Error& error) {
        errors[rank] = error.what();
        events[rank] = callback->seen;
        throw;
      }
    };
    EXPECT_THROW(run_ranks(n, train_one), Error);
    for (const std::string& error : errors)
      EXPECT_NE(error.find(concat("out of memory: no room for ", room + 1, " rows")), std::string::npos) << error;
    EXPECT_EQ(events[0], concat("1 on 0: out of memory: no room for ", room + 1, " rows\n"));
    EXPECT_EQ(events[1], "");
  }
}

// Steps of so many rows, one after the other, and again.
class RowsOfSteps final : public BatchSource {
 public:
  RowsOfSteps(Context host, std::vector<std::int64_t> rows) : host_(std::move(host)), rows_(std::move(rows)) {}
  std::int64_t rows(std::int64_t step) const override { return rows_[static_cast<std::size_t>(step) % rows_.size()]; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    const std::int64_t count = range.end - range.begin;
    std::vector<float> x;
    for (std::int64_t i = range.begin; i < range.end; ++i) x.push_back(static_cast<float>((7 * step + i) % 11) / 8);
    Batch batch(host_, range.begin, count);
    batch.set("x", from_values(host_, x, {count, 1}));
    return batch;
  }

 private:
  Context host_;
  std::vector<std::int64_t> rows_;
};

std::vector<std::int64_t> rows_of_steps;
std::int64_t narrow_from = 0;  // the micro-batch from which on there is room for five rows

class Narrowing : public Task {
 public:
  explicit Narrowing(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override { return {.training = std::make_shared<RowsOfSteps>(site_.host, rows_of_steps)}; }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable x = input(batch, "x", pass);
    if (++micro_batches_ >= narrow_from && batch.rows() > 5) throw OutOfMemory("out of memory on paper");
    return mse_loss(net_(x, pass), x);
  }

 private:
  TaskSite site_;
  std::int64_t micro_batches_ = 0;
  Mlp net_{{1, 8, 1}, ActivationKind::tanh};
};

Config narrowing_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more) {
  static const auto keys = keys_of_task<Narrowing>("narrowing");
  return task_run(keys, "strategy: fp32\noptimizer: {lr: 1e-2}\nlog: {every: 1}\nthreads: 1\n", place, run,
                  std::move(more));
}

TEST(SafeSteps, DivideLaterStepsThatHaveMoreRowsThanTheOneThatFoundNoMemory) {
  const TemporaryFolder place;
  rows_of_steps = {20, 20, 8, 20};
  narrow_from = 3;
  Recorder told;
  train(narrowing_run(place, "run", {"steps=8", "batch={global: 20, micro: 20}"}), told);
  EXPECT_EQ(told.losses.size(), 8U);
  EXPECT_NE(told.messages.find("step 3: out of memory on paper; it and all later ones are computed in micro-batches of "
                               "4 rows"),
            std::string::npos)
      << told.messages;
}

TEST(SafeSteps, RefuseAStepOfMoreRowsThanThereMayBeAfterADivisionToo) {
  const TemporaryFolder place;
  narrow_from = 0;
  for (const auto& [rows, count] : {std::pair(12, 0), {13, 5}, {25, 9}}) {
    rows_of_steps = {12, 12, rows};
    const Config config = narrowing_run(place, concat("run", rows), {"steps=4", "batch={global: 12, micro: 6}"});
    TrainObserver silent;
    const std::string refusal = error_of([&] { train(config, silent); });
    if (count == 0) EXPECT_EQ(refusal, "");
    else
      EXPECT_TRUE(refusal.starts_with(concat("step 3 has ", rows, " rows, in ", count,
                                             " micro-batches on each rank, but the engine was made for 4;")))
          << refusal;
  }
}

}  // namespace
}  // namespace keel
