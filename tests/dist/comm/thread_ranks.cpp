#include <mutex>

#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/ranks.h"

namespace keel::testing {

bool has_ranks(int /*n*/) { return true; }
bool has_processes() { return false; }
std::string told_by_first_process(const std::string& mine) { return mine; }

void on_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options) {
  run_ranks(n, f, options);
}

std::vector<std::vector<double>> results(int n, const std::function<std::vector<double>(Communicator&)>& f,
                                         const CommunicatorOptions& options) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(n));
  run_ranks(
      n, [&](Communicator& comm) { all[static_cast<std::size_t>(comm.rank())] = f(comm); }, options);
  return all;
}

void die() { throw Error("this rank dies"); }

std::vector<std::vector<double>> results_of_those_left(int n,
                                                       const std::function<std::vector<double>(Communicator&)>& f,
                                                       const CommunicatorOptions& options) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(n));
  try {
    run_ranks(
        n, [&](Communicator& comm) { all[static_cast<std::size_t>(comm.rank())] = f(comm); }, options);
  } catch (const std::exception&) {}
  return all;
}

std::vector<std::string> messages(int n, const std::function<void(Communicator&)>& f,
                                  const CommunicatorOptions& options) {
  std::vector<std::string> all(static_cast<std::size_t>(n));
  try {
    run_ranks(
        n,
        [&](Communicator& comm) {
          try {
            f(comm);
          } catch (const std::exception& error) {
            all[static_cast<std::size_t>(comm.rank())] = error.what();
            throw;
          }
        },
        options);
  } catch (const std::exception&) {}
  return all;
}

}  // namespace keel::testing
