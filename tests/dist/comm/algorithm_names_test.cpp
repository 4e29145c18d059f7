// The names of algorithms, and what is said of one that is none.

#include "keel/dist/comm/algorithm_names.h"

#include <gtest/gtest.h>

#include <string>

#include "keel/dist/comm/algorithms.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

TEST(AlgorithmNames, SuggestTheNearest) {
  try {
    find_algorithm("rign");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "there is no algorithm 'rign' of collectives, did you mean 'ring'?");
  }
}

TEST(AlgorithmNames, OfConfigurationsLeadToTheAlgorithms) {
  for (const AlgorithmName& one : algorithm_names()) {
    EXPECT_EQ(&find_algorithm_name(one.name), &one);
    if (!one.algorithm.empty()) { EXPECT_EQ(find_algorithm(one.algorithm).name, one.algorithm); }
  }
  EXPECT_EQ(find_algorithm_name("halving").name, "rhd");
  for (const AlgorithmName& one : algorithm_names()) EXPECT_EQ(one.shared_memory, one.name == "ordered") << one.name;
  EXPECT_NE(error_of([] { find_algorithm_name("rign"); }).find("did you mean 'ring'?"), std::string::npos);
  EXPECT_NE(error_of([] { find_algorithm_name("halvig"); }).find("did you mean 'halving'?"), std::string::npos);
  for (const std::string name : {"", "x"})
    EXPECT_EQ(
        error_of([&] { find_algorithm_name(name); }),
        concat("there is no algorithm '", name, "'; there are ordered, direct, ring, tree, rhd, hier, flat, backend"));
}

TEST(AlgorithmNames, ThatAreNoneAreToldByTheirBeginning) {
  const std::string name = "q" + std::string(59, '-');
  for (const std::string behind : {"", "x", "xyz"})
    EXPECT_NE(error_of([&] { find_algorithm_name(name + behind); }).find("there is no algorithm '" + name + "';"),
              std::string::npos);
}

}  // namespace
}  // namespace keel
