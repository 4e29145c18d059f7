// Learning on real text, against a published loss; minutes long, so on request: scripts/test -L slow.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "keel/trainer/trainer.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

// nanoGPT's setting for a laptop's processor on the text "tinyshakespeare", whose README gives a validation loss of
// 1.88: 2,000 steps of 12 sequences of 64 characters.
// The model is GPT-2 with its biases; nanoGPT leaves them out by default (docs/benchmarks.md has both).
constexpr const char* kSetting = R"(
steps: 2000
model: {type: gpt, layers: 4, heads: 4, width: 128, block: 64, dropout: 0}
data: {type: text, tokenizer: character, validation: 0.1}
batch: {global: 12}
optimizer: {type: AdamW, lr: 1e-3, betas: [0.9, 0.99], weight_decay: 0.1}
scheduler: {type: cosine, warmup: 100, min_lr: 1e-4}
clip: 1
eval: {every: 0, batches: 0}
checkpoint: {every: 0}
)";
constexpr double kWorstMeanLoss = 1.90;
constexpr int kSeeds = 3;

// Loss over the whole validation part, mean over the seeds.
double mean_loss(const std::string& text, const std::string& precision) {
  double sum = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const testing::TemporaryFolder folder;
    TrainObserver silent;
    const Config config =
        parse_config(kSetting, "tinyshakespeare.yaml",
                     {concat("seed=", seed), "strategy=" + precision, "data.path=" + text, "run=" + (folder / "run")});
    const double loss = *train(config, silent).evaluation->find(kValidationLoss);
    std::cout << precision << ", seed " << seed << ": validation loss " << loss << std::endl;
    sum += loss;
  }
  return sum / kSeeds;
}

class SlowLearning : public ::testing::TestWithParam<const char*> {};

TEST_P(SlowLearning, ReachesNanoGptsLossOnTinyshakespeare) {
  const char* text = std::getenv("KEEL_TINYSHAKESPEARE");
  if (text == nullptr)
    GTEST_SKIP() << "KEEL_TINYSHAKESPEARE is not set; it names the text file tinyshakespeare (input.txt)";
  ASSERT_TRUE(std::filesystem::is_regular_file(text)) << "KEEL_TINYSHAKESPEARE=" << text << " is no file";
  EXPECT_LE(mean_loss(text, GetParam()), kWorstMeanLoss);
}

INSTANTIATE_TEST_SUITE_P(SlowPrecision, SlowLearning, ::testing::Values("fp32", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace keel
