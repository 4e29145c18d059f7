#pragma once
// Ranks that are processes, forked by a test, and that TCP connects.

#include <functional>
#include <string>
#include <vector>

#include "keel/dist/comm/transport_communicator.h"

namespace keel::testing {

// What a process has come to.
struct ForkedEnd {
  int status = -1;        // as of waitpid()
  std::string text = {};  // what f returned, or what it threw
  bool has_thrown = false;

  bool is_fine() const { return status == 0 && !has_thrown; }
};

// Calls f with each of n ranks, in a process of its own. What throws has told the other ranks; so has an expectation
// that fails.
std::vector<ForkedEnd> run_forked(int n, const CommunicatorOptions& options,
                                  const std::function<std::string(Communicator&)>& f);

}  // namespace keel::testing
