// What a run writes into its records has names that no task can take.

#include <gtest/gtest.h>

#include <set>

#include "keel/tasks/names.h"
#include "keel/trainer/metrics.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(RecordNames, AreAllThatRunsWrite) {
  const TemporaryFolder place;
  const std::vector<std::pair<int, Config>> runs = {
      {2, small_run(place, "ranks", {"strategy=zero1-fp16"})},
      {1, small_run(place, "closure", {"strategy=ddp-fp32", "optimizer={type: LBFGS, lr: 0.1}", "clip=0"})},
      {1,
       parse_config("{steps: 2, model: {layers: 1, heads: 2, width: 16, block: 16}, data: {type: addition, digits: 1}, "
                    "batch: {global: 4, micro: 4}, eval: {every: 1, samples: 4}}",
                    "addition.yaml", {concat("run=", place / "addition")})}};
  std::set<std::string> names;
  for (const auto& [ranks, config] : runs) {
    train_by(ranks, config);
    for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
      for (const auto& [name, value] : record.members()) names.insert(name);
  }
  for (const std::string& name : names) EXPECT_TRUE(is_record_name(name)) << name;
  for (const char* name : {"loss_scale", "exposed_ms", "evaluations", "exact_match", "peak_total_bytes"})
    EXPECT_TRUE(names.contains(name)) << name << " shows that such a record was met";
}

}  // namespace
}  // namespace keel
