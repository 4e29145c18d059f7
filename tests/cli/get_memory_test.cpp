// How much memory `keel get` takes.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

constexpr std::int64_t kWidth = 1024, kUnitBytes = 12 * kWidth * kWidth * 4;  // of a transformer block

TEST(GetMemory, BesideTheProgramIsAtMostAUnitAnd64MiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory that was given back";
#endif
  const Sandbox sandbox;
  const std::string train =
      "train text.yaml steps=1 scheduler.warmup=0 optimizer.type=SGD eval.every=0 batch.global=2 batch.micro=1 ";
  for (const std::string& size : {std::string("run=small"), concat("run=large model.layers=3 model.width=", kWidth)}) {
    const Outcome made = sandbox.keel(train + size);
    ASSERT_EQ(made.code, 0) << made.err;
  }
  ASSERT_GT(std::filesystem::file_size(sandbox / "large/model.safetensors"), 3 * kUnitBytes);
  for (const char* dtype : {"f32", "bf16"}) {
    const auto peak_of = [&](const char* run) {
      const Outcome outcome = sandbox.keel(concat("get ", run, " --force --out out.safetensors --dtype ", dtype));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome.peak;
    };
    const std::int64_t small = peak_of("small"), large = peak_of("large");
    EXPECT_GT(small, 1 << 20) << "it is measured";
    EXPECT_LE(large - small, kUnitBytes + (64 << 20)) << dtype;
  }
}

}  // namespace
}  // namespace keel::cli
