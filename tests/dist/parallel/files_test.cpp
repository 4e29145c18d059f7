// Weights, gradients and states in files: the same bits as in memory, and the bytes of the plan.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/parallel/plan.h"
#include "keel/optim/catalog.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/runtime/faulty_file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

// Units of other sizes between two uses of a layer of the root's.
struct MixedNet : Module {
  Linear head{kWidth, kWidth};
  std::vector<UnitLayer> layers = std::vector<UnitLayer>(3);
  Variable operator()(const Tensor& x) const {
    const Scope scope(*this);
    Variable y = tanh(head(Variable(x)));
    for (const UnitLayer& layer : layers) y = layer(y);
    return head(y);
  }
  void visit(Visitor& v) override {
    v("head", head);
    v("layers", layers);
  }
};

struct FileCase {
  std::string name;
  void (*set)(ShardingOptions&);
};

const FileCase kFileCases[] = {{"states", [](ShardingOptions& s) { s.offload_optimizer = Residence::file; }},
                               {"weights", [](ShardingOptions& s) { s.offload_parameters = Residence::file; }},
                               {"gradients", [](ShardingOptions& s) { s.offload_gradients = Residence::file; }},
                               {"all", [](ShardingOptions& s) {
                                  s.offload_optimizer = s.offload_parameters = s.offload_gradients = Residence::file;
                                }}};

std::unique_ptr<ScratchFile> in_memory(const std::string&) { return std::make_unique<FaultyFile>(); }

// Numbers of rank 0, of weights and state, and what the steps told.
std::vector<double> trained(int ranks, const ShardedOptions& options, const UpdateSettings& optimizer, int steps = 3) {
  std::vector<double> outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    MixedNet net;
    Sharded engine(net, context, comm, make_elementwise("test", {.settings = optimizer, .weight_decay = 0.01}),
                   options);
    std::vector<double> mine;
    for (int step = 0; step < steps; ++step) {
      for (int micro = 0; micro < options.micro_batches; ++micro) {
        const Tensor x =
            rows(context, step, comm, micro, static_cast<int>(options.micro_batches), 7, options.policy.parameter);
        engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro + 1 == options.micro_batches});
      }
      const StepResult result = engine.step(1e-2).get();
      mine.push_back(result.grad_norm);
      mine.push_back(result.taken ? 1 : 0);
    }
    for (const double each : whole_values(engine)) mine.push_back(each);
    for (const double each : numbers_of(engine.weights())) mine.push_back(each);
    for (const double each : numbers_of(engine.optimizer_state())) mine.push_back(each);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) outcome = mine;
  });
  return outcome;
}

ShardedOptions in_dtype(int number, DType dtype, int micro_batches) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(dtype);
  options.micro_batches = micro_batches;
  options.clip = 0.5;
  if (dtype == DType::f16) {
    options.loss_scale = 65536 * 16;  // the first steps are skipped
    options.scaling = LossScaling::dynamic();
  }
  options.scratch_file = in_memory;
  return options;
}

const UpdateSettings kFiledAdamW = AdamSettings{.decoupled = true};

TEST(Files, GiveTheBitsOfMemoryInEveryStageAndNumberOfRanks) {
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 4})
      for (const int micro_batches : {1, 2}) {
        const ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
        const std::vector<double> expected = trained(ranks, options, kFiledAdamW);
        for (const FileCase& each : kFileCases) {
          if (ranks != 3 && each.name != "all") continue;
          ShardedOptions files = options;
          each.set(files.sharding);
          EXPECT_TRUE(trained(ranks, files, kFiledAdamW) == expected)
              << each.name << ", stage " << number << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
        }
      }
}

TEST(Files, GiveTheBitsOfMemoryInEveryPrecisionAndForOtherOptimizers) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64})
    for (const UpdateSettings& optimizer :
         {kFiledAdamW, UpdateSettings(NAdamSettings{}), UpdateSettings(ScheduleFreeSettings{}),
          UpdateSettings(AdagradSettings{.initial_accumulator = 0.1})})
      for (const int number : {0, 3})
        for (const int ranks : {1, 2}) {
          const ShardedOptions options = in_dtype(number, dtype, 2);
          const std::vector<double> expected = trained(ranks, options, optimizer);
          ShardedOptions files = options;
          kFileCases[3].set(files.sharding);
          EXPECT_TRUE(trained(ranks, files, optimizer) == expected) << "stage " << number << ", " << ranks << " ranks";
        }
}

TEST(Files, GiveTheBitsOfMemoryHoweverGradientsAreSummed) {
  const std::pair<std::string, void (*)(ShardedOptions&)> kVariants[] = {
      {"each backward", [](ShardedOptions& o) { o.sharding.accumulation = Accumulation::each_backward; }},
      {"without overlap", [](ShardedOptions& o) { o.sharding.overlap = false; }},
      {"small buckets", [](ShardedOptions& o) { o.sharding.bucket = o.sharding.first_bucket = 1; }},
      {"groups of one", [](ShardedOptions& o) { o.sharding.group = 1; }},
      {"prefetch 0", [](ShardedOptions& o) { o.sharding.prefetch = 0; }},
      {"prefetch 3", [](ShardedOptions& o) { o.sharding.prefetch = 3; }},
      {"not resharded", [](ShardedOptions& o) { o.sharding.reshard_after_forward = false; }},
      {"persistent", [](ShardedOptions& o) { o.sharding.persistence_threshold = 4200; }},
      {"compressed", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::int8}; }},
      {"top k", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::top_k, .fraction = 0.1}; }}};
  for (const auto& [name, set] : kVariants)
    for (const int number : {1, 2, 3}) {
      ShardedOptions options = in_dtype(number, DType::bf16, 2);
      set(options);
      const std::vector<double> expected = trained(2, options, kFiledAdamW);
      kFileCases[3].set(options.sharding);
      EXPECT_TRUE(trained(2, options, kFiledAdamW) == expected) << name << ", stage " << number;
    }
}

// Trains two steps, and compares what the engine counts in the second one with the plan.
template <class Net>
void expect_as_planned(const std::string& what, int ranks, const ShardedOptions& options) {
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Net net, planned;
    const auto optimizer = [] { return make_elementwise("test", {.settings = kFiledAdamW}); };
    const RankPlan plan =
        plan_rank(lay_out(planned, shard_ranks(options, ranks)), *optimizer(), options, ranks, comm.rank());
    Sharded engine(net, context, comm, optimizer(), options);
    const auto current = [&](Purpose purpose) { return static_cast<std::int64_t>(context.memory()[purpose].current); };
    const std::int64_t kept[] = {current(Purpose::parameter), current(Purpose::gradient), current(Purpose::optimizer)};
    const auto step = [&] {
      for (int micro = 0; micro < options.micro_batches; ++micro) {
        const Tensor x = uniform_tensor(context, {3, kWidth}, 5, options.policy.parameter);
        engine.backward(mean(net(x)), {.last = micro + 1 == options.micro_batches});
      }
      engine.step(1e-3);
      for (const auto& unit : engine.units())
        if (!unit->split().pages_values) unit->parameters().wait_gathered();
    };
    step();
    const PageTraffic before = engine.file_traffic();
    const std::int64_t sent = engine.data_traffic().sent(), control = engine.control_traffic().sent();
    context.allocator().reset_peaks();
    step();
    const std::lock_guard lock(mutex);
    SCOPED_TRACE(concat(what, ", stage ", options.sharding.stage, ", ", options.micro_batches, " micro-batches, rank ",
                        comm.rank(), " of ", ranks));
    EXPECT_EQ(plan.memory.parameter, kept[0]);
    EXPECT_EQ(plan.memory.gradient, kept[1]);
    EXPECT_EQ(plan.memory.optimizer, kept[2]);
    EXPECT_EQ(plan.memory.buckets, static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak));
    EXPECT_EQ(plan.memory.file, engine.file_bytes());
    EXPECT_EQ(plan.traffic.file_read, engine.file_traffic().read - before.read);
    EXPECT_EQ(plan.traffic.file_written, engine.file_traffic().written - before.written);
    EXPECT_EQ(plan.traffic.sent(), engine.data_traffic().sent() - sent);
    EXPECT_EQ(plan.traffic.control, engine.control_traffic().sent() - control);
    EXPECT_EQ(current(Purpose::bucket), 0) << "what lies in files has left the memory";
  });
}

TEST(Files, ReadWriteAndHoldWhatThePlanSays) {
  const std::pair<std::string, void (*)(ShardedOptions&)> kVariants[] = {
      {"", [](ShardedOptions&) {}},
      {"each backward, ", [](ShardedOptions& o) { o.sharding.accumulation = Accumulation::each_backward; }},
      {"without overlap, ", [](ShardedOptions& o) { o.sharding.overlap = false; }},
      {"prefetch 0, ", [](ShardedOptions& o) { o.sharding.prefetch = 0; }},
      {"a small budget, ", [](ShardedOptions& o) { o.sharding.offload_budget = 160000; }}};
  for (const auto& [name, set] : kVariants)
    for (const FileCase& each : kFileCases)
      for (const int number : {0, 1, 2, 3})
        for (const int ranks : {1, 3})
          for (const int micro_batches : {1, 2}) {
            ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
            set(options);
            each.set(options.sharding);
            if (!name.empty() && each.name != "all") continue;
            if (name == "each backward, " && number == 0 && micro_batches > 1) continue;  // refused with gradients
            if (name.empty()) expect_as_planned<UnitNet>(name + each.name + ", a chain", ranks, options);
            expect_as_planned<MixedNet>(name + each.name + ", a root around units", ranks, options);
          }
}

// The 14 bytes of a number in bf16 with AdamW that are not its weight lie in the file, and go there and back once a
// step.
TEST(Files, PlanTheBytesOfTheStatesOnce) {
  LargeNet model;
  ShardedOptions options = in_dtype(1, DType::bf16, 1);
  options.sharding.offload_optimizer = Residence::file;
  const RankPlan plan = plan_rank(lay_out(model, 4), *make_adamw(), options, 4, 0);
  EXPECT_EQ(plan.memory.file, 12 * 1'052'672) << "pages begin at whole sectors";
  EXPECT_EQ(plan.traffic.file_read, 12 * 1'049'600);
  EXPECT_EQ(plan.traffic.file_written, 12 * 1'049'600);
  EXPECT_EQ(plan.memory.optimizer, 0);
}

TEST(Files, OfUnitsThatTheBudgetHasNoRoomForAreRefusedByName) {
  UnitNet net;
  ShardedOptions options = in_dtype(0, DType::bf16, 1);
  options.sharding.offload_optimizer = Residence::file;
  options.sharding.offload_budget = 12 * 4352 - 1;
  const std::string told = error_of([&] { Sharded(net, testing::context(1), make_adamw(), options); });
  EXPECT_EQ(told,
            "sharding.offload_budget is 51.0 KiB, and an update has 51.0 KiB of layers.0 in memory at a time of "
            "what lies in files");
}

TEST(Files, AreRefusedWithWhatNeedsAllAtOnce) {
  const auto refusal = [](const ShardedOptions& options, std::unique_ptr<Optimizer> optimizer) {
    return error_of([&] {
      UnitNet net;
      Sharded(net, testing::context(1), std::move(optimizer), options);
    });
  };
  const auto lamb = [] { return make_elementwise("Lamb", {.settings = LambSettings{}}); };
  ShardedOptions options = in_dtype(3, DType::bf16, 2);
  for (const FileCase& each : kFileCases) {
    ShardedOptions files = options;
    each.set(files.sharding);
    EXPECT_NE(refusal(files, lamb()).find("is not offered with Lamb"), std::string::npos) << each.name;
  }
  options.sharding.offload_gradients = Residence::file;
  options.clip_by = ClipBy::value;
  EXPECT_EQ(refusal(options, make_adamw()),
            "sharding.offload_gradients is not offered with clip_by: value: all gradients would be read once more");
  options.clip_by = ClipBy::norm;
  options.scratch_file = {};
  EXPECT_EQ(refusal(options, make_adamw()),
            "what lies in files needs sharding.offload_folder, the folder of the files");
}

}  // namespace
}  // namespace keel
