// Runs with compressed gradients: resuming to the same bits, with other ranks, and what configurations are refused.

#include <gtest/gtest.h>

#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/file.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<std::string> extended(const std::vector<std::string>& settings, const std::vector<std::string>& more) {
  std::vector<std::string> all = settings;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(CompressedRun, GoesOnFromACheckpointToTheSameBits) {
  for (const char* compression : {"{type: int8}", "{type: topk, fraction: 0.05}", "{type: powersgd, rank: 2}"})
    for (const char* strategy : {"ddp-fp32", "zero2-bf16"}) {
      const TemporaryFolder place;
      const std::vector<std::string> settings = {concat("gradient_compression=", compression),
                                                 concat("strategy=", strategy)};
      train_by(2, small_run(place, "whole", settings));
      train_by(2, small_run(place, "parts", settings), 5);
      const std::string saved = RunFolder(place / "parts").checkpoint(5);
      EXPECT_TRUE(std::filesystem::exists(saved + "/compression-1-of-2.safetensors"));
      train_by(2, small_run(place, "parts", extended(settings, {"resume=auto"})));
      EXPECT_EQ(weights_of(small_run(place, "parts")), weights_of(small_run(place, "whole")))
          << compression << ", " << strategy;
    }
}

TEST(ZeroPlusPlusRun, GoesOnFromACheckpointToTheSameBits) {
  for (const char* strategy : {"ddp-fp32", "zero3-bf16"}) {
    const TemporaryFolder place;
    const std::vector<std::string> settings = {"gradient_compression.type=qgz", "sharding.weight_code=int8",
                                               "sharding.secondary=true", "sharding.subgroup=2",
                                               concat("strategy=", strategy)};
    train_by(4, small_run(place, "whole", settings));
    train_by(4, small_run(place, "parts", settings), 5);
    train_by(4, small_run(place, "parts", extended(settings, {"resume=auto"})));
    EXPECT_EQ(weights_of(small_run(place, "parts")), weights_of(small_run(place, "whole"))) << strategy;
  }
}

TEST(CompressedRun, GoesOnWithMoreAndFewerRanksAndWithoutCompression) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = {"gradient_compression={type: topk, fraction: 0.02}",
                                             "strategy=zero1-fp32"};
  const Config config = small_run(place, "run", settings);
  train_by(3, config, 5);
  const std::string checkpoint = RunFolder(config.run).checkpoint(5);
  for (const int n : {1, 2, 4}) {
    const std::string run = concat("on-", n);
    train_by(n, small_run(place, run, extended(settings, {"resume=" + checkpoint})));
    EXPECT_FALSE(weights_of(small_run(place, run)).empty());
  }
  train_by(2, small_run(place, "plain", {"strategy=zero1-fp32", "resume=" + checkpoint}));
  // A file that has changed is found like any other.
  write_text_file(checkpoint + "/compression-2-of-3.safetensors", "damaged");
  EXPECT_THROW(train_by(3, small_run(place, "again", extended(settings, {"resume=" + checkpoint}))), Error);
}

// Groups keep what they have not delivered across, and ranks their parts of it.
TEST(CompressedRun, InGroupsGoesOnToTheSameBits) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = {"strategy=zero2-fp32", "sharding.group=2",
                                             "gradient_compression.type=int4"};
  train_by(4, small_run(place, "whole", settings));
  train_by(4, small_run(place, "parts", settings), 5);
  const std::string checkpoint = RunFolder(place / "parts").checkpoint(5);
  // Whole residuals of two groups become those of two ranks, and of one group of each of four ranks.
  train_by(2, small_run(place, "two", extended(settings, {"sharding.group=0", "resume=" + checkpoint})));
  train_by(4, small_run(place, "four", extended(settings, {"sharding.group=1", "resume=" + checkpoint})));
  for (const char* run : {"two", "four"}) EXPECT_FALSE(weights_of(small_run(place, run)).empty());
  train_by(4, small_run(place, "parts", extended(settings, {"resume=auto"})));
  EXPECT_TRUE(weights_of(small_run(place, "parts")) == weights_of(small_run(place, "whole")));
}

TEST(CompressedRun, IsRefusedWhereItCannotBe) {
  const TemporaryFolder place;
  const auto message = [&](const std::vector<std::string>& settings) {
    try {
      small_run(place, "run", settings);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  for (const char* type : {"int8", "int4", "topk"}) {
    const std::string compressed = concat("gradient_compression.type=", type);
    EXPECT_EQ(message({compressed, "sharding.group=2"}), "");
    EXPECT_NE(message({compressed, "sharding.group=2", "outer.type=local_sgd"}).find("that take outer steps"),
              std::string::npos);
  }
  for (const char* type : {"qgz", "powersgd"})
    EXPECT_NE(message({concat("gradient_compression.type=", type), "sharding.group=2"}).find("int8, int4 or topk"),
              std::string::npos);
  EXPECT_NE(message({"sharding.secondary=true"}).find("set sharding.subgroup"), std::string::npos);
  EXPECT_NE(message({"gradient_compression.type=bf16", "sharding.wire=fp16"}).find("remove one"), std::string::npos);
  EXPECT_NE(message({"gradient_compression.type=topkk"}).find("did you mean 'topk'"), std::string::npos);
  EXPECT_NE(message({"gradient_compression.rank=3"}).find("applies only when"), std::string::npos);
  EXPECT_EQ(message({"gradient_compression={type: powersgd, rank: 3}", "strategy=zero3-bf16"}), "");
  for (const char* type : {"bf16", "int8", "int4", "qgz", "topk", "powersgd"})
    EXPECT_EQ(message({concat("gradient_compression.type=", type), "device=cuda:0"}), "") << type;
}

}  // namespace
}  // namespace keel
