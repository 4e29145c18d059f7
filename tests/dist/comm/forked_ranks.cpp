#include "tests/dist/comm/forked_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include "keel/dist/comm/tcp_transport.h"
#include "keel/runtime/file.h"
#include "tests/dist/comm/ranks.h"
#include "tests/temporary_folder.h"

namespace keel::testing {
namespace {

std::string call_as_rank(const TcpOptions& tcp, const CommunicatorOptions& options,
                         const std::function<std::string(Communicator&)>& f) {
  const auto ranks = make_tcp_communicator(tcp, options);
  try {
    std::string text = f(*ranks);
    KEEL_CHECK(!::testing::Test::HasFailure(), "an expectation has failed");
    return text;
  } catch (const std::exception& error) {
    ranks->fail(concat("rank ", tcp.rank, " failed: ", error.what()));
    throw;
  }
}

std::string bytes_of(const std::vector<double>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

std::vector<double> numbers_of(const std::string& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace

std::vector<ForkedEnd> run_forked(int n, const CommunicatorOptions& options,
                                  const std::function<std::string(Communicator&)>& f) {
  const TemporaryFolder place;
  const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
  const auto said = [&](int rank) { return place / concat("said-", rank); };
  const auto threw = [&](int rank) { return place / concat("threw-", rank); };
  std::vector<pid_t> processes;
  for (int r = 0; r < n; ++r) {
    processes.push_back(::fork());
    KEEL_CHECK(processes.back() >= 0, "cannot start a process");
    if (processes.back() > 0) continue;
    try {
      write_text_file(said(r), call_as_rank({.rank = r,
                                             .size = n,
                                             .address = to_string(listener->address()),
                                             .timeout = std::chrono::seconds(20),
                                             .listener = r == 0 ? listener : nullptr},
                                            options, f));
    } catch (const std::exception& error) { write_text_file(threw(r), error.what()); }
    ::_exit(0);
  }
  std::vector<ForkedEnd> ends;
  for (int r = 0; r < n; ++r) {
    ForkedEnd end;
    ::waitpid(processes[static_cast<std::size_t>(r)], &end.status, 0);
    end.has_thrown = std::filesystem::exists(threw(r));
    if (const std::string path = end.has_thrown ? threw(r) : said(r); std::filesystem::exists(path))
      end.text = read_text_file(path);
    ends.push_back(std::move(end));
  }
  return ends;
}

bool has_ranks(int /*n*/) { return true; }
bool has_processes() { return true; }
std::string told_by_first_process(const std::string& mine) { return mine; }

void on_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options) {
  for (const ForkedEnd& end : run_forked(n, options, [&](Communicator& ranks) {
         f(ranks);
         return std::string();
       }))
    KEEL_CHECK(end.is_fine(), end.text);
}

std::vector<std::vector<double>> results(int n, const std::function<std::vector<double>(Communicator&)>& f,
                                         const CommunicatorOptions& options) {
  std::vector<std::vector<double>> all;
  for (const ForkedEnd& end : run_forked(n, options, [&](Communicator& ranks) { return bytes_of(f(ranks)); })) {
    KEEL_CHECK(end.is_fine(), end.text);
    all.push_back(numbers_of(end.text));
  }
  return all;
}

void die() {
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

std::vector<std::vector<double>> results_of_those_left(int n,
                                                       const std::function<std::vector<double>(Communicator&)>& f,
                                                       const CommunicatorOptions& options) {
  std::vector<std::vector<double>> all;
  for (const ForkedEnd& end : run_forked(n, options, [&](Communicator& ranks) { return bytes_of(f(ranks)); }))
    all.push_back(end.is_fine() ? numbers_of(end.text) : std::vector<double>());
  return all;
}

std::vector<std::string> messages(int n, const std::function<void(Communicator&)>& f,
                                  const CommunicatorOptions& options) {
  std::vector<std::string> texts;
  for (const ForkedEnd& end : run_forked(n, options, [&](Communicator& ranks) {
         f(ranks);
         return std::string();
       })) {
    KEEL_CHECK(end.status == 0, "a process ended with status ", end.status);
    texts.push_back(end.has_thrown ? end.text : "");
  }
  return texts;
}

}  // namespace keel::testing
