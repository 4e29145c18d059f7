#pragma once
// The ranks of tests that hold for every transport: threads in test_comm (thread_ranks.cpp), processes in test_comm_mpi
// (mpi/mpi_ranks.cpp), where every process runs every test, and processes that a test forks (forked_ranks.cpp).

#include <functional>
#include <string>
#include <vector>

#include "keel/dist/comm/transport_communicator.h"

namespace keel::testing {

// Whether this program, as it was started, is the one that tests n ranks. Otherwise the functions below do nothing.
bool has_ranks(int n);
// Whether they are processes, which take their time to come and go.
bool has_processes();

// Calls f on each of n ranks, as keel::run_ranks does.
void on_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options = {});

// What f returned on each rank.
std::vector<std::vector<double>> results(int n, const std::function<std::vector<double>(Communicator&)>& f,
                                         const CommunicatorOptions& options = {});

// What the exception of each rank said; empty for a rank without one.
std::vector<std::string> messages(int n, const std::function<void(Communicator&)>& f,
                                  const CommunicatorOptions& options = {});

// What f returned on each rank that came to its end; nothing for the others.
std::vector<std::vector<double>> results_of_those_left(int n,
                                                       const std::function<std::vector<double>(Communicator&)>& f,
                                                       const CommunicatorOptions& options = {});
// Ends the rank that calls it, within the above: a thread by an exception, a process by a signal that nobody handles.
[[noreturn]] void die();

// What the first process of the program says; every process calls it, and they meet. Where a test has one process
// alone: what that one says.
std::string told_by_first_process(const std::string& mine);

}  // namespace keel::testing

#define KEEL_NEEDS_RANKS(n) \
  if (!::keel::testing::has_ranks(n)) GTEST_SKIP() << "runs where the program has " << (n) << " ranks"
