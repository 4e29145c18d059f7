// `keel softmax-demo`: a row of attention from blocks is that of the whole row.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/program.h"
#include "tests/pattern.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::run_keel;

TEST(SoftmaxDemo, EndsInTheSoftmaxOfTheWholeRowWhateverTheBlocks) {
  const double scores[] = {1, 3, 2, 5}, values[] = {7, -2, 0.5, 4};
  double total = 0, out = 0;
  for (int i = 0; i < 4; ++i) {
    total += std::exp(scores[i]);
    out += std::exp(scores[i]) * values[i];
  }
  for (const int block : {1, 2, 3, 4, 64}) {
    const Outcome shown = run_keel(concat("softmax-demo 1 3 2 5 --values 7,-2,0.5,4 --block ", block));
    ASSERT_EQ(shown.code, 0) << shown.err;
    const auto found =
        testing::first_match(shown.out, R"(result: .* = ([-0-9.]+); kept for backward: .* = ([-0-9.]+)$)");
    ASSERT_EQ(found.size(), 3u) << shown.out;
    EXPECT_NEAR(std::stod(found[1]), out / total, 1e-4) << shown.out;
    EXPECT_NEAR(std::stod(found[2]), std::log(total), 1e-4) << shown.out;
    const auto plain = testing::first_match(shown.out, R"(in f64: .* and the result ([-0-9.]+)$)");
    ASSERT_EQ(plain.size(), 2u) << shown.out;
    EXPECT_NEAR(std::stod(plain[1]), out / total, 1e-4);
  }
}

TEST(SoftmaxDemo, ShowsWhatEachBlockChanges) {
  const std::string shown = run_keel("softmax-demo 1,3,2,5").out;
  for (const char* const line :
       {"block 0: scores 1, 3; values 10, 20\n  m = 3, the largest score so far\n  l = 0.1353 + 1.0000 = 1.1353\n",
        "block 1: scores 2, 5; values 30, 40\n",
        "  m = 5, the largest score so far; what came before counts e^(3 - 5) = 0.1353 of what it did\n",
        "  l = 1.1353 * 0.1353 + 0.0498 + 1.0000 = 1.2034\n"})
    EXPECT_NE(shown.find(line), std::string::npos) << shown;
  const std::string hidden = run_keel("softmax-demo --block 1 -- -inf 2").out;
  EXPECT_NE(hidden.find("counts e^(-inf - 2) = 0.0000"), std::string::npos) << hidden;
}

TEST(SoftmaxDemo, SaysWhatIsNoRow) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "SCORE"},
      {"1 two", "'two' is none"},
      {"1 nan", "one is nan or larger"},
      {"1 1e39", "one is nan or larger"},
      {"-- -inf", "every key is hidden"},
      {"1 2 --values 3", "there are 1"},
      {"1 2 --block 0", "--block"},
  };
  for (const auto& [words, said] : bad) {
    const Outcome outcome = run_keel(concat("softmax-demo ", words));
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << words << ": " << outcome.err;
  }
}

}  // namespace
}  // namespace keel::cli
