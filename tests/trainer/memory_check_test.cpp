#include "keel/trainer/memory_check.h"
#include "keel/models/model_keys.h"

#include <mutex>
#include <vector>

#include "keel/dist/checkpoint/memory_hosts.h"
#include "keel/trainer/compare.h"
#include "keel/trainer/run_plan.h"
#include "tests/error_of.h"
#include "tests/trainer/planned_model.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

TEST(MemoryCheck, RefusesWhatThePlanSaysIsTooMuchForTheRanksOfAMachine) {
  const TemporaryFolder place;
  for (const char* strategy : {"ddp-fp32", "zero2-bf16", "zero3-fp32"})
    for (const int n : {1, 3}) {
      const Config config = small_run(place, "run", {concat("strategy=", strategy)});
      const MemoryPlan plan = plan_run(config, *planned_model(config), n, true).memory;
      const std::int64_t all = n * (plan.kept() + plan.buckets);
      run_ranks(n, [&](Communicator& ranks) {
        const Context context = Context::create({.threads = 1});
        const auto refusal = [&](const Config& asked, std::int64_t bytes) {
          const auto made = model_spec(asked, 40)->make_decoder();
          CausalModel& model = *made;
          return error_of([&] {
            check_memory(asked, model, ranks, context, {.machine = {bytes, true}, .device = {}});
          });
        };
        EXPECT_EQ(refusal(config, all), "");
        EXPECT_EQ(refusal(config, 0), "") << "unknown";
        const std::string message = refusal(config, all - 1);
        EXPECT_TRUE(message.starts_with(concat("training needs ", n == 1 ? "" : "3 times "))) << message;
        EXPECT_NE(message.find("this group of processes (cgroup) has"), std::string::npos) << message;
        EXPECT_NE(message.find("check_memory=false"), std::string::npos) << message;
        Config regardless = config;
        regardless.check_memory = false;
        EXPECT_EQ(refusal(regardless, all - 1), "");
      });
    }
}

TEST(MemoryCheck, CountsTheCopyOfAnAsynchronousSave) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"strategy=zero2-bf16", "checkpoint.async=true"});
  const MemoryPlan plan = plan_run(config, *planned_model(config), 2, true).memory;
  ASSERT_GT(plan.checkpoint, 0);
  const std::int64_t all = 2 * (plan.kept() + plan.buckets + plan.checkpoint);
  run_ranks(2, [&](Communicator& ranks) {
    const Context context = Context::create({.threads = 1});
    const auto refusal = [&](bool async, std::int64_t bytes) {
      Config asked = config;
      asked.checkpoint.async = async;
      const auto made = model_spec(asked, 40)->make_decoder();
      CausalModel& model = *made;
      return error_of([&] { check_memory(asked, model, ranks, context, {.machine = {bytes, true}, .device = {}}); });
    };
    EXPECT_EQ(refusal(true, all), "");
    EXPECT_NE(refusal(true, all - 1).find(" of a copy for checkpoint.async"), std::string::npos);
    EXPECT_EQ(refusal(false, all - 2 * plan.checkpoint), "");
  });
}

// Far beyond any machine: allocating it would end the test.
TEST(MemoryCheck, ComesBeforeAnythingIsAllocatedOrWritten) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) {
    const Config config = small_run(place, "run", {"model.width=65536", "model.layers=1024"});
    std::mutex mutex;
    std::vector<std::string> messages;
    EXPECT_THROW(run_ranks(n,
                           [&](Communicator& ranks) {
                             Recorder recorder;
                             const std::string message = error_of([&] { train(config, recorder, ranks); });
                             const std::lock_guard lock(mutex);
                             messages.push_back(message);
                             if (!message.empty()) throw Error(MessageLines{message});
                           }),
                 Error);
    for (const std::string& message : messages) {
      EXPECT_EQ(message, messages[0]);
      EXPECT_TRUE(message.starts_with("training needs ")) << message;
    }
    EXPECT_FALSE(std::filesystem::exists(config.run));
  }
}

struct Immense : Module {
  Parameter weight{{std::int64_t{1} << 20, std::int64_t{1} << 31}, Initializer::zeros()};
  Buffer table;
  explicit Immense(std::int64_t rows) : table(Buffer::constant({rows, std::int64_t{1} << 31})) {}
  void visit(Visitor& v) override {
    v("weight", weight);
    v("table", table);
  }
};

// 2^51 numbers in a weight, and as many or more in a buffer: beyond 2^52 they are not planned.
TEST(MemoryCheck, RefusesMoreNumbersThanAPlanCountsInWeightsAndBuffers) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  run_ranks(1, [&](Communicator& ranks) {
    const Context context = Context::create({.threads = 1});
    const auto refusal = [&](std::int64_t rows) {
      Immense model(rows);
      return error_of([&] {
        check_memory(config, model, ranks, context, {.machine = {1 << 20, false}, .device = {}});
      });
    };
    EXPECT_EQ(refusal(std::int64_t{3} << 20),
              concat("training needs more than ", binary_size(0x1p55),
                     " of weights; a smaller model, more machines or a strategy that shards more need less, and "
                     "check_memory=false goes on regardless"));
    const std::string planned = refusal(std::int64_t{1} << 20);
    EXPECT_NE(planned.find("this machine has 1.0 MiB"), std::string::npos) << planned;
  });
}

TEST(MemoryCheck, HoldsForComparisonsToo) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"model.width=65536", "model.layers=1024"});
  Recorder recorder;
  run_ranks(1, [&](Communicator& ranks) {
    const auto variants = variants_of(config, {.strategies = {"ddp-fp32"}});
    EXPECT_TRUE(error_of([&] {
                  compare(variants, {.steps = 2, .repeats = 1}, recorder, ranks);
                }).starts_with("training needs "));
  });
}

std::string bytes_text(std::int64_t bytes) { return binary_size(static_cast<double>(bytes)); }

// Ranks of several machines, each of which has just what its ranks need, and then one of them a byte less.
TEST(MemoryCheck, IsOfTheRanksOfEachMachineAndOfTheCopiesThatLieThere) {
  const TemporaryFolder place;
  for (const std::vector<int>& nodes : {std::vector<int>{0}, {0, 0}, {0, 0, 1}, {0, 1, 1, 2}})
    for (const char* every : {"0", "1"}) {
      const int n = static_cast<int>(nodes.size());
      const Config config = small_run(
          place, "run", {"strategy=zero2-bf16", "checkpoint.async=true", concat("checkpoint.memory_every=", every)});
      const auto model = planned_model(config);
      const MemoryPlan plan = plan_run(config, *model, n, true).memory;
      const std::int64_t each = plan.kept() + plan.buckets + plan.checkpoint;
      const std::vector<std::string> same(nodes.size());
      const MemoryHosts hosts = pair_hosts(nodes, same, same);
      std::vector<std::int64_t> copies(nodes.size()), here(nodes.size());
      for (std::size_t r = 0; r < nodes.size(); ++r)
        for (std::size_t q = 0; q < nodes.size(); ++q) {
          const int keeper = hosts.partner[q];
          const std::int64_t files = *every == '0' ? 0 : planned_files(config, *model, n, static_cast<int>(q));
          here[r] += nodes[q] == nodes[r];
          copies[r] += 2 * files * (nodes[q] == nodes[r]);
          if (keeper >= 0) copies[r] += 2 * files * (nodes[static_cast<std::size_t>(keeper)] == nodes[r]);
        }
      run_ranks(n,
                [&](Communicator& ranks) {
                  const Context context = Context::create({.threads = 1});
                  const auto own = static_cast<std::size_t>(ranks.rank());
                  const std::int64_t need = here[own] * each + copies[own];
                  const auto refusal = [&](std::int64_t bytes) {
                    const auto made = planned_model(config);
                    return error_of([&] {
                      check_memory(config, *made, ranks, context, {.machine = {bytes, false}, .device = {}});
                    });
                  };
                  EXPECT_EQ(refusal(need), "");
                  for (std::size_t poor = 0; poor < nodes.size(); ++poor) {
                    const std::int64_t has = here[poor] * each + copies[poor] - 1;
                    EXPECT_EQ(refusal(own == poor ? has : need),
                              concat(poor == 0 ? "" : concat("rank ", poor, ": "), "training needs ",
                                     here[poor] == 1 ? "" : concat(here[poor], " times "), bytes_text(each),
                                     *every == '0' ? "" : concat(" and ", bytes_text(copies[poor])), " (",
                                     bytes_text(plan.parameter), " of weights, ", bytes_text(plan.gradient),
                                     " of gradients, ", bytes_text(plan.optimizer), " of optimizer state, ",
                                     bytes_text(plan.buckets), " whole for a while, ", bytes_text(plan.checkpoint),
                                     " of a copy for checkpoint.async",
                                     *every == '0' ? ""
                                                   : concat(", and ", bytes_text(copies[poor]),
                                                            " of copies in memory for checkpoint.memory_every"),
                                     "; activations come on top), but this machine has ", bytes_text(has),
                                     "; a smaller model, more machines or a strategy that shards more need less, and "
                                     "check_memory=false goes on regardless"));
                  }
                  if (copies[own] > 0) { EXPECT_NE(refusal(copies[own] / 2), "") << "less than the copies alone"; }
                },
                {.nodes = nodes});
    }
}

}  // namespace
}  // namespace keel
