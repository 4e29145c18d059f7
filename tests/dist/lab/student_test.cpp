#include "keel/dist/lab/student.h"

#include <gtest/gtest.h>

#include <utility>

#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

TEST(Student, HasTheQuantilesOfTheTables) {
  const std::pair<std::int64_t, double> known[] = {
      {1, 12.7062}, {2, 4.30265}, {4, 2.77645}, {30, 2.04227}, {1000, 1.96234}};
  for (const auto& [freedom, quantile] : known) EXPECT_NEAR(student_quantile(freedom), quantile, 2e-5 * quantile);
  EXPECT_THROW(student_quantile(0), Error);
}

}  // namespace
}  // namespace keel::lab
