// Every option in the engine's tables, from C to the engine.

#include <gtest/gtest.h>

#include "keel/capi/settings.h"
#include "keel/trainer/assembly.h"
#include "tests/capi/handles.h"
#include "tests/dist/parallel/other_options.h"

namespace keel {
namespace {

using namespace testing;

ShardedOptions options_of(const CSettings& settings) {
  struct Nothing : Module {
    void visit(Visitor&) override {}
  } model;
  return engine_options(capi::settings_of(settings).config(), 1, model);
}

TEST(CEngineKeys, AreTakenByTheNamesOfConfigurationsAndReachTheEngine) {
  for (const OtherOption& option : other_options()) {
    const CSettings settings = c_settings({{"strategy", "zero3-fp32"}});
    for (const auto& [key, value] : option.needs) EXPECT_KEEL(keel_settings_set(settings, key.c_str(), value.c_str()));
    const ShardedOptions plain = options_of(settings);
    EXPECT_KEEL(keel_settings_set(settings, option.key.c_str(), option.value.c_str()));
    EXPECT_EQ(differing(plain, options_of(settings)), std::vector{option.key}) << option.value;
  }
}

}  // namespace
}  // namespace keel
