// A checkpoint that keel 0.1.0 has made: this program goes on from it as that one did.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/data/safetensors.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

TEST(OldCheckpoint, OfKeel010IsGoneOnFromToTheWeightsThatKeel010LearntFromIt) {
  const testing::Sandbox sandbox;
  const std::string golden = KEEL_SOURCE_DIR "/tests/golden/checkpoint_format_2";
  std::filesystem::copy(golden, sandbox / "step-00000003");
  sandbox.write("old.yaml",
                "steps: 6\n"
                "model: {layers: 1, heads: 1, width: 4, block: 6, dropout: 0}\n"
                "data: {type: addition, digits: 1}\n"
                "batch: {global: 4, micro: 2}\n"
                "optimizer: {lr: 0.01}\n"
                "eval: {every: 0, samples: 20}\n"
                "gradient_compression: {type: int8}\n"
                "strategy: zero2-bf16\n"
                "threads: 1\n");
  const testing::Outcome outcome = sandbox.keel("launch -N 2 --threads old.yaml run=made resume=step-00000003");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("goes on after step 3 from step-00000003\n"), std::string::npos) << outcome.out;
  const Context host = Context::create({.threads = 1});
  const SafetensorsFile mine(sandbox / "made/model.safetensors"), theirs(golden + "_goes_on.safetensors");
  ASSERT_EQ(mine.entries().size(), theirs.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    const std::vector<float> expected = theirs.tensor(entry.name, host).to_vector<float>(),
                             values = mine.tensor(entry.name, host).to_vector<float>();
    ASSERT_EQ(values.size(), expected.size()) << entry.name;
    // The bits on the machine that has made them. A step moves a weight by up to 5e-3.
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-3) << entry.name << ' ' << i;
  }
  EXPECT_EQ(sandbox.keel("checkpoints step-00000003 --verify").code, 0);
}

}  // namespace
}  // namespace keel::cli
