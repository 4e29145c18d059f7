#pragma once
// Comparison with the samples of tests/golden/decoders.json.

#include <gtest/gtest.h>

#include "tests/models/golden_decoders.h"

namespace keel::testing {

inline void expect_samples(const NamedNumbers& tensors, const Json& stored, double limit, const std::string& name) {
  ASSERT_EQ(tensors.size(), stored.members().size()) << name;
  for (const auto& [tensor, expected] : stored.members())
    EXPECT_LT(sample_error(tensor, tensors.at(tensor), expected), limit) << name << ": " << tensor;
}

}  // namespace keel::testing
