#pragma once
// Holds what is drawn at random to the share by which it is drawn.

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

namespace keel::testing {

// Of `of` independent draws, `counted` are a share whose standard deviation is sqrt(share (1 - share) / of); it lies
// within six of them.
inline void expect_binomial(double counted, double of, double share, std::string_view what) {
  EXPECT_NEAR(counted / of, share, 6 * std::sqrt(share * (1 - share) / of)) << what << ": " << counted << " of " << of;
}

}  // namespace keel::testing
