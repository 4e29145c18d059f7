// Every option in the engine's tables, from a configuration to the engine and to what ranks agree on.

#include <gtest/gtest.h>

#include <set>

#include "keel/trainer/assembly.h"
#include "tests/dist/parallel/other_options.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

ShardedOptions with_settings(const std::vector<std::string>& settings) {
  const TemporaryFolder place;
  struct Nothing : Module {
    void visit(Visitor&) override {}
  } model;
  return engine_options(small_run(place, "run", settings), 1, model);
}

TEST(EngineKeys, OfTheTablesChangeTheOptionThatTheyNameAndNoOther) {
  const std::vector<OtherOption> options = other_options();
  EXPECT_GT(options.size(), 25u);
  for (const OtherOption& option : options) {
    std::vector<std::string> settings;
    for (const auto& [key, value] : option.needs) settings.push_back(concat(key, '=', value));
    const ShardedOptions plain = with_settings(settings);
    settings.push_back(concat(option.key, '=', option.value));
    EXPECT_EQ(differing(plain, with_settings(settings)), std::vector{option.key}) << option.value;
  }
}

TEST(EngineKeys, AreOptionsOfWhoMakesAnEngineInCppAndRanksAgreeOnEach) {
  std::set<std::string> texts = {to_text(ShardedOptions{})};
  std::size_t count = 0;
  const auto change = [&](auto keys, auto of) {
    for (const auto& key : keys) {
      ShardedOptions options;
      std::visit(
          [&]<class T, class Options>(T Options::*member) {
            T& value = of(options).*member;
            if constexpr (std::is_same_v<T, bool>) value = !value;
            else if constexpr (has_names<T>) set_by_index(value, name_index(value) == 0 ? 1 : 0);
            else if constexpr (std::is_same_v<T, std::string>) value += "elsewhere";
            else value = static_cast<T>(value + 1);
          },
          key.member);
      EXPECT_TRUE(texts.insert(to_text(options)).second) << key.key;
      ++count;
    }
  };
  change(engine_keys(), [](ShardedOptions& options) -> ShardedOptions& { return options; });
  change(sharding_keys(), [](ShardedOptions& options) -> ShardingOptions& { return options.sharding; });
  change(compression_keys(), [](ShardedOptions& options) -> Compression& { return options.compression; });
  change(scaling_keys(), [](ShardedOptions& options) -> LossScaling& { return options.scaling; });
  EXPECT_EQ(count, other_options().size());
}

}  // namespace
}  // namespace keel
