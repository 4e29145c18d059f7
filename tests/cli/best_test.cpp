// What programs see of best checkpoints and averages: `keel checkpoints`, `keel get`.

#include <gtest/gtest.h>

#include "tests/cli/sandbox.h"

namespace keel {
namespace {

using namespace testing;

TEST(BestAndAverages, AreListedAndExported) {
  const Sandbox sandbox;
  EXPECT_EQ(sandbox.keel("train text.yaml checkpoint.best=validation_loss ema.decay=0.9").code, 0);
  EXPECT_EQ(sandbox.read("runs/text/checkpoints/best"), "step-00000012\n");
  const Outcome list = sandbox.keel("checkpoints runs/text --json list.json");
  EXPECT_NE(list.out.find("latest, best, resume"), std::string::npos) << list.out;
  EXPECT_NE(sandbox.read("list.json").find("\"best\": \"step-00000012\""), std::string::npos);
  EXPECT_EQ(sandbox.keel("get runs/text --best --out w.safetensors").code, 0);
  EXPECT_EQ(sandbox.keel("get runs/text --best --ema --out e.safetensors").code, 0);
  EXPECT_EQ(sandbox.read("w.safetensors").size(), sandbox.read("e.safetensors").size());
  EXPECT_NE(sandbox.read("w.safetensors"), sandbox.read("e.safetensors"));
}

TEST(BestAndAverages, ThatAreNotThereAreErrorsThatSayWhatAsksForThem) {
  const Sandbox sandbox;
  EXPECT_EQ(sandbox.keel("train text.yaml steps=5").code, 0);
  const auto told = [&](const std::string& options) {
    const Outcome outcome = sandbox.keel("get runs/text --out w.safetensors " + options);
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_FALSE(sandbox.has("w.safetensors"));
    return outcome.err;
  };
  EXPECT_NE(told("--best").find("names no best checkpoint; checkpoint.best says"), std::string::npos);
  EXPECT_NE(told("--ema").find("has no average of this kind; ema.decay asks for one"), std::string::npos);
  EXPECT_NE(told("--swa").find("has no average of this kind; swa.start asks for one"), std::string::npos);
  EXPECT_NE(told("--swa --ema").find("leave one out"), std::string::npos);
  EXPECT_NE(told("--best --step 5").find("leave --step out"), std::string::npos);
}

}  // namespace
}  // namespace keel
