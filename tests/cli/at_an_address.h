#pragma once
// Tests of ranks that are processes and find each other by an address in the environment.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/start_rank.h"

namespace keel::testing {

class AtAnAddress : public ::testing::Test {
 protected:
  Processes start(int n, const std::string& arguments) const {
    return start(arguments, std::vector<std::string>(static_cast<std::size_t>(n), sandbox / ""));
  }
  Processes start(const std::string& arguments, const std::vector<std::string>& folders) const {
    Processes processes;
    for (const std::string& folder : folders)
      processes.push_back(start_rank(port, processes.size(), folders.size(), arguments, folder));
    return processes;
  }
  static std::vector<Outcome> wait(const Processes& processes) {
    std::vector<Outcome> outcomes;
    for (const auto& process : processes) outcomes.push_back(process->wait());
    return outcomes;
  }

  Sandbox sandbox;
  FreePort port;
};

}  // namespace keel::testing
