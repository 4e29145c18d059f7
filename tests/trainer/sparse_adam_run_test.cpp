// SparseAdam in configurations, and models of tables in checkpoints.

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "keel/dist/checkpoint/load.h"
#include "tests/dist/parallel/rows_support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(SparseAdamRun, IsRefusedWhereAModelHasDenseGradientsBeforeAnythingIsWritten) {
  const TemporaryFolder place;
  const Config config = small_run(place, "a", {"optimizer.type=sparse_adam"});
  Recorder recorder;
  const std::string refusal = error_of([&] { train(config, recorder); });
  EXPECT_EQ(refusal.rfind("SparseAdam takes gradients that are kept as rows alone, and that of wte.weight is dense", 0),
            0U)
      << refusal;
  EXPECT_FALSE(std::filesystem::exists(config.run));
}

TEST(SparseAdamRun, RefusesIllegalValuesWithTheirKeyAndLine) {
  const auto refusal = [](const std::string& options) {
    return error_of([&] {
      parse_config("steps: 5\ndata: {type: addition}\noptimizer:\n  type: SparseAdam\n  " + options, "c.yaml");
    });
  };
  EXPECT_EQ(refusal("lr: -1e-3"), "c.yaml:5: optimizer.lr: expects a number > 0, got '-1e-3'");
  EXPECT_EQ(refusal("eps: 0"), "c.yaml:5: optimizer.eps: expects a number > 0, got '0'");
  EXPECT_EQ(refusal("betas: [0.9, 1]"),
            "c.yaml:5: optimizer.betas: expects a list of two numbers from 0 to below 1, got '1'");
  EXPECT_EQ(refusal("betas: [-0.1, 0.9]"),
            "c.yaml:5: optimizer.betas: expects a list of two numbers from 0 to below 1, got '-0.1'");
  EXPECT_NE(refusal("weight_decay: 0.1").find("c.yaml:5: optimizer.weight_decay: applies only when"),
            std::string::npos);
  EXPECT_NE(refusal("groups: [{match: a, weight_decay: 0.1}]").find("but SparseAdam has none"), std::string::npos);
  EXPECT_EQ(refusal("maximize: true"), "");
}

// Two steps, a checkpoint, and two more: by the ranks before, and by those after it.
std::vector<double> train_through_checkpoint(const std::string& path, int ranks_before, int ranks_after) {
  run_ranks(ranks_before, [&](Communicator& comm) {
    Tables net;
    const Context context = testing::context(1);
    Sharded engine(net, context, comm, sparse_adam(), stage(2));
    train_tables(engine, net, 0, 2);
    save_checkpoint(path, engine, comm, {{"step", 2}});
  });
  std::vector<double> weights;
  run_ranks(ranks_after, [&](Communicator& comm) {
    Tables net;
    const Context context = testing::context(1);
    Sharded engine(net, context, comm, sparse_adam(), stage(2));
    load_checkpoint(path, read_manifest(path), engine, comm);
    train_tables(engine, net, 2, 4);
    const std::vector<double> whole = whole_values(engine);
    if (comm.rank() == 0) weights = whole;
  });
  return weights;
}

TEST(SparseAdamRun, GoesOnFromACheckpointAsIfItHadNeverStopped) {
  const TemporaryFolder place;
  for (const int ranks : {1, 2, 3}) {
    std::vector<double> expected;
    run_ranks(ranks, [&](Communicator& comm) {
      Tables net;
      const Context context = testing::context(1);
      Sharded engine(net, context, comm, sparse_adam(), stage(2));
      train_tables(engine, net, 0, 4);
      const std::vector<double> whole = whole_values(engine);
      if (comm.rank() == 0) expected = whole;
    });
    EXPECT_EQ(train_through_checkpoint(place / concat("c", ranks), ranks, ranks), expected) << ranks;
    // Other ranks have other shards, and add up in another order.
    EXPECT_LT(relative_error(train_through_checkpoint(place / concat("d", ranks), 4 - ranks, ranks), expected), 1e-6);
  }
}

}  // namespace
}  // namespace keel
