// What a callback may make of the learning rate.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "keel/trainer/callback.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

class ScalesRates : public Callback {
 public:
  explicit ScalesRates(double factor) : factor_(factor) {}
  std::string_view name() const override { return "scales"; }
  void fit_begin(LoopView& view) override { view.set_rate_factor(factor_); }

 private:
  double factor_;
};

TEST(CallbackRates, AreScaledByAnythingFromNothingOn) {
  const auto trained = [](double factor, std::vector<double>& rates) {
    const TemporaryFolder place;
    const Config config = small_run(
        place, "run", {"steps=2", "scheduler={type: constant}", "optimizer.lr=1e-2", "eval.every=0", "model.layers=1"});
    TrainObserver silent;
    const std::string told = error_of([&] { train(config, silent, {std::make_shared<ScalesRates>(factor)}); });
    rates.clear();
    if (told.empty())
      for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
        if (record.contains("lr")) rates.push_back(record.at("lr").number());
    return told;
  };
  std::vector<double> rates;
  for (const double factor : {0.0, 0.5, 1.0, 3.0}) {
    EXPECT_EQ(trained(factor, rates), "");
    EXPECT_EQ(rates, std::vector<double>(2, 1e-2 * factor)) << factor;
  }
  for (const double factor : {-0.5, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_EQ(trained(factor, rates),
              concat("callback scales failed in fit_begin: a factor on the learning rate is finite and at least 0, "
                     "not ",
                     factor));
}

}  // namespace
}  // namespace keel
