#pragma once
// What a wrong configuration is told.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/trainer/config.h"

namespace keel::testing {

using Overrides = std::vector<std::string>;

// The message of the Error that the text must cause; empty when it is accepted.
inline std::string message_of(std::string_view yaml, const Overrides& overrides = {}) {
  try {
    parse_config(yaml, "c.yaml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "";
}

inline std::string with(std::string_view line) {
  return "steps: 100\ndata: {type: addition}\n" + std::string(line) + "\n";
}

struct Wrong {
  std::string yaml;
  std::string message;
};

}  // namespace keel::testing
