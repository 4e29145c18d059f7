#include "keel/runtime/processor.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace keel {
namespace {

TEST(Processor, HasWhatThisBuildUses) {
  EXPECT_STREQ(missing_instructions(kBuiltFor).message, "");
  EXPECT_STREQ(missing_instructions(0).message, "");
}

// Linux lists what it found by CPUID, too.
TEST(Processor, MultipliesBf16WhereTheSystemSaysSo) {
  const std::string path = "/proc/cpuinfo";
  if (!std::ifstream(path)) GTEST_SKIP() << path << " is not there to compare with";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const bool listed =
      text.str().find(" avx512_bf16") != std::string::npos || text.str().find(" amx_bf16") != std::string::npos;
  EXPECT_EQ(multiplies_bf16(), listed);
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
