#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "keel/runtime/error.h"
#include "keel/trainer/learning_rate.h"

namespace keel {
namespace {

// Numbers of PyTorch, transformers and DeepSpeed; made by tests/golden/generate_schedules.py.
nlohmann::json golden_schedules() {
  std::ifstream file(KEEL_SOURCE_DIR "/tests/golden/schedules.json");
  return nlohmann::json::parse(file);
}

Config config_of_case(const nlohmann::json& file, const nlohmann::json& schedule) {
  return parse_config(concat("steps: ", file["steps"], "\ndata: {type: addition}\noptimizer: {lr: ", file["lr"],
                             "}\nscheduler: ", schedule["scheduler"].get<std::string>(), "\n"),
                      "c.yaml");
}

TEST(GoldenSchedules, EveryScheduleHasTheRatesAndMomentaOfItsLibrary) {
  const nlohmann::json file = golden_schedules();
  ASSERT_GE(file["cases"].size(), 60u);
  for (const nlohmann::json& golden : file["cases"]) {
    SCOPED_TRACE(golden["name"]);
    const LearningRate schedule(config_of_case(file, golden));
    ASSERT_GE(golden["steps"].size(), 15u);
    double largest = 0;
    for (const nlohmann::json& rate : golden["rates"]) largest = std::max(largest, rate.get<double>());
    for (std::size_t i = 0; i < golden["steps"].size(); ++i) {
      const std::int64_t step = golden["steps"][i];
      EXPECT_NEAR(schedule.rate(step), golden["rates"][i].get<double>(), 1e-12 * largest)
          << "after " << step << " steps";
      ASSERT_EQ(schedule.momentum(step).has_value(), golden.contains("momentum"));
      if (golden.contains("momentum") && !golden["momentum"][i].is_null()) {
        EXPECT_NEAR(*schedule.momentum(step), golden["momentum"][i].get<double>(), 1e-12)
            << "after " << step << " steps";
      }
    }
  }
}

TEST(GoldenSchedules, CoverEveryScheduleThatIsNotKeelsOwn) {
  const nlohmann::json file = golden_schedules();
  std::set<std::string_view> compared = {"cosine", "linear"};
  for (const nlohmann::json& golden : file["cases"])
    compared.insert(LearningRate(config_of_case(file, golden)).schedule().kind().name);
  for (const ScheduleKind& kind : schedule_kinds()) EXPECT_TRUE(compared.contains(kind.name)) << kind.name;
}

}  // namespace
}  // namespace keel
