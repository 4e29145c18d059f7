// Names, limits and values of rules about metrics, one by one.

#include "keel/trainer/metric_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(MetricNames, SayWhichValuesAreBetterByEachWord) {
  for (const std::string word : {"loss", "perplexity", "error", "mae", "mse", "rmse", "distance"})
    for (const std::string& name : {word, "a_" + word, word + "_b", word + "7", "set/x_" + word + "12_y", "f1/" + word})
      EXPECT_EQ(mode_by_name(name), MetricMode::min) << name;
  for (const std::string word : {"accuracy", "exact_match", "f1", "precision", "recall", "r2", "auroc", "map", "mrr",
                                 "ndcg", "hr", "bleu", "rouge", "correct", "ap", "top"})
    for (const std::string& name :
         {word, "a_" + word, word + "_b", word + "7", "set/x_" + word + "12_y", "loss/" + word})
      EXPECT_EQ(mode_by_name(name), MetricMode::max) << name;
  for (const char* none : {"", "_", "7", "a__b", "x_", "x_/", "losses", "aloss", "loss-", "map/x", "2loss", "time"})
    EXPECT_EQ(mode_by_name(none), std::nullopt) << none;
  EXPECT_EQ(mode_by_name("aloss_loss"), MetricMode::min) << "a word that begins none, and then one";
  EXPECT_EQ(mode_by_name("top_loss"), MetricMode::min) << "losses first";
  constexpr std::string_view kLonger = "top12x";
  for (std::size_t end = 3; end <= 5; ++end) EXPECT_EQ(mode_by_name(kLonger.substr(0, end)), MetricMode::max);
}

TEST(MetricTerms, AreReadWithTheirSetsModesAndLimits) {
  struct Read {
    const char* text;
    MetricTerm term;
  };
  for (const Read& each : {Read{"f1", {"f1"}},
                           {"a/b_7", {"a/b_7"}},
                           {"x@s", {"x", {"s"}}},
                           {"x@s@t@u", {"x", {"s", "t", "u"}}},
                           {"x:min", {"x", {}, MetricMode::min}},
                           {"x@s:max>0.25", {"x", {"s"}, MetricMode::max, kInfinity, 0.25}},
                           {"x<-2", {"x", {}, MetricMode::automatic, -2, -kInfinity}},
                           {"x:min>1e3", {"x", {}, MetricMode::min, kInfinity, 1000}}}) {
    const MetricRule rule = MetricRule::parse(each.text);
    ASSERT_EQ(rule.terms().size(), 1u) << each.text;
    const MetricTerm& term = rule.terms()[0];
    EXPECT_EQ(term.metric, each.term.metric) << each.text;
    EXPECT_EQ(term.sets, each.term.sets) << each.text;
    EXPECT_EQ(term.mode, each.term.mode) << each.text;
    EXPECT_EQ(term.below, each.term.below) << each.text;
    EXPECT_EQ(term.above, each.term.above) << each.text;
  }
  EXPECT_EQ(MetricRule::parse("a+b:min+c", MetricMode::max).terms()[0].mode, MetricMode::max);
  EXPECT_EQ(MetricRule::parse("a+b:min+c", MetricMode::max).terms()[1].mode, MetricMode::min);
  EXPECT_EQ(MetricRule::parse("a+b:min+c", MetricMode::max).terms()[2].metric, "c");
  for (const std::string wrong : {"x<1y", "x<inf", "x>-inf", "x>nan", "x<1e999", "x<", "x< 1", "<1", "@s", "x@", ":min",
                                  "x@s-t", "x-y", "x:min:max<", "x>1<2"})
    EXPECT_EQ(error_of([&] { MetricRule::parse(wrong); }),
              concat("expects a value of evaluations, or several as in f1@dev@test>0.8+loss, got '", wrong, "'"));
}

TEST(MetricTerms, HaveValuesOfTheirOwnNamesFirst) {
  const auto value = [](const MetricValues& values, const char* text) {
    return MetricRule::parse(text).values_in(values, "key").front();
  };
  EXPECT_EQ(value({{"validation_loss", 3}, {"dev/f1", 0.5}}, "f1"), 0.5) << "the only set";
  EXPECT_EQ(value({{"f1", 1}, {"dev/f1", 0.5}}, "f1"), 1);
  EXPECT_EQ(value({{"loss", 4}, {"validation_loss", 3}}, "loss"), 4);
  EXPECT_EQ(value({{"a/loss", 4}, {"b/loss", 3}, {"loss", 7}}, "validation_loss"), 3.5) << "of the sets";
  EXPECT_EQ(value({{"a/b/f1", 4}, {"b/f1", 3}}, "f1"), 3);
  EXPECT_EQ(value({{"s/x", 1}, {"t/x", 2}, {"u/x", 6}}, "x@s@t@u"), 3);
  EXPECT_EQ(error_of([&] {
              value({{"s/x", 1}}, "x@s@none@nine");
            }),
            "key: an evaluation gives no 'none/x'; it gives s/x");
  EXPECT_EQ(error_of([&] {
              value({{"loss", 1}}, "validation_loss");
            }),
            "key: an evaluation gives no 'validation_loss'; it gives loss");
}

TEST(MetricTerms, AreBetterWithinTheirLimitsAlone) {
  const auto better = [](const char* text, double value, std::optional<double> best, double gain = 0) {
    return MetricRule::parse(text, MetricMode::automatic, gain).is_better({value}, {best});
  };
  for (const double any : {kInfinity, -kInfinity, 0.0}) {
    EXPECT_TRUE(better("loss", any, std::nullopt)) << any;
    EXPECT_TRUE(better("f1", any, std::nullopt)) << any;
  }
  EXPECT_TRUE(better("loss<2", 1, std::nullopt));
  EXPECT_FALSE(better("loss<2", 2, std::nullopt));
  EXPECT_FALSE(better("loss<2", kInfinity, std::nullopt));
  EXPECT_TRUE(better("loss<2", -kInfinity, std::nullopt));
  EXPECT_TRUE(better("f1>2", 3, std::nullopt));
  EXPECT_FALSE(better("f1>2", 2, std::nullopt));
  EXPECT_FALSE(better("f1>2", -kInfinity, std::nullopt));
  EXPECT_TRUE(better("f1>2", kInfinity, std::nullopt));
  EXPECT_FALSE(better("f1>2", std::nan(""), std::nullopt));
  EXPECT_TRUE(better("time", 1, 2)) << "less, where nothing says otherwise";
  EXPECT_FALSE(better("time", 2, 1));
  EXPECT_FALSE(better("time", 1, 1));
  EXPECT_TRUE(better("time", 0.5, 1, 0.25));
  EXPECT_FALSE(better("time", 0.75, 1, 0.25));
  EXPECT_FALSE(better("f1", 1.25, 1, 0.25));
  EXPECT_TRUE(better("f1", 1.5, 1, 0.25));
  EXPECT_FALSE(better("f1", 1, 1));
  const MetricRule rule = MetricRule::parse("f1+loss");
  EXPECT_FALSE(rule.is_better({1, 1}, {{1, 2}})) << "the first is the same";
  EXPECT_TRUE(rule.is_better({2, 1}, {{1, 2}}));
}

}  // namespace
}  // namespace keel
