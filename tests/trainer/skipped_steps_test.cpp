// Runs in which steps are skipped because a gradient is not finite.

#include <cmath>

#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(SkippedSteps, ARunThatTakesNoneIsAnErrorOnEveryRank) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) {
    const Config config = small_run(place, concat("run", n),
                                    {"steps=5", "strategy=ddp-fp16", "loss_scale.initial=1e30", "scheduler.warmup=0"});
    std::string messages[2];
    run_ranks(n, [&](Communicator& ranks) {
      Recorder recorder;
      messages[ranks.rank()] = error_of([&] { train(config, recorder, ranks); });
    });
    for (int r = 0; r < n; ++r)
      EXPECT_NE(messages[r].find("every step of this run was skipped"), std::string::npos) << messages[r];
  }
}

// The loss scale finds its place: codes of gradients that are not finite leave nothing behind.
TEST(SkippedSteps, AreFollowedByStepsThatAreTakenUnderEveryCompressionAndOptimizer) {
  const TemporaryFolder place;
  for (const std::string strategy : {"ddp-fp16", "zero1-fp16", "zero2-fp16"})
    for (const std::string compression : {"int8", "qgz", "topk", "powersgd"})
      for (const std::string optimizer : {"{type: AdamW8bit, lr: 3e-3}", "{type: AdamW, lr: 3e-3}"}) {
        SCOPED_TRACE(strategy + ' ' + compression + ' ' + optimizer);
        const Config config =
            small_run(place, "run",
                      {"model.width=36", "strategy=" + strategy, "gradient_compression.type=" + compression,
                       "loss_scale.initial=16384", "optimizer=" + optimizer, "checkpoint.every=0"});
        std::filesystem::remove_all(config.run);
        const auto told = train_by(2, config);
        int skipped = 0;
        const std::string& messages = told[0]->messages;
        for (std::size_t at = messages.find("was skipped"); at != std::string::npos;
             at = messages.find("was skipped", at + 1))
          ++skipped;
        EXPECT_TRUE(skipped > 0 && skipped <= 6) << messages;
        EXPECT_TRUE(std::isfinite(told[0]->losses.back()));
      }
}

}  // namespace
}  // namespace keel
