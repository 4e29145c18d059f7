#include "keel/runtime/processor.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "keel/runtime/error.h"

namespace keel {
namespace {

TEST(Processor, HasWhatThisBuildUses) {
  EXPECT_STREQ(missing_instructions(kBuiltFor).message, "");
  EXPECT_STREQ(missing_instructions(0).message, "");
}

// What Linux lists of a processor that it found by CPUID, too; empty where it does not.
std::string listed_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) return line + " ";
  return "";
}

TEST(Processor, HasWhatTheSystemListsToMultiplyBy) {
  const std::string flags = listed_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags to compare with";
  const auto listed = [&](std::string_view flag) { return flags.find(concat(' ', flag, ' ')) != std::string::npos; };
  EXPECT_EQ(multiplies_bf16(), listed("avx512_bf16") || listed("amx_bf16"));
  EXPECT_EQ(multiplies_without_carry(), listed("pclmulqdq"));
}

#if defined(__x86_64__)
TEST(Processor, WhatItLacksIsNamedWithTheWayOut) {
  EXPECT_NE(kBuiltFor, 0u);                                       // AVX2 at least
  const MissingInstructions missing = missing_instructions(~0u);  // none has both AMD's XOP and AVX-512
  ASSERT_TRUE(missing);
  const std::string message = missing.message;
  EXPECT_TRUE(message.find("XOP") != std::string::npos || message.find("AVX-512F") != std::string::npos) << message;
  EXPECT_EQ(message.substr(message.find(';')),
            "; build it with -D KEEL_NATIVE=OFF, for every x86-64 processor with AVX2, or on this machine");
}
#endif

}  // namespace
}  // namespace keel
