#include "keel/runtime/processor.h"

#include <gtest/gtest.h>

#include <string>

namespace keel {
namespace {

TEST(Processor, HasWhatThisBuildUses) {
  EXPECT_STREQ(missing_instructions(kBuiltFor).message, "");
  EXPECT_STREQ(missing_instructions(0).message, "");
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
