#include "tests/dist/comm/tcp/tcp_ranks.h"

#include <exception>
#include <thread>

#include "keel/runtime/error.h"
#include "tests/dist/comm/ranks.h"

namespace keel::testing {
namespace {

std::vector<std::exception_ptr> failures(int n, const std::function<void(Communicator&)>& f,
                                         const CommunicatorOptions& options) {
  return in_threads(tcp_options(n), [&](const TcpOptions& tcp) {
    const auto communicator = make_tcp_communicator(tcp, options);
    try {
      f(*communicator);
    } catch (const std::exception& error) {
      communicator->fail(concat("rank ", tcp.rank, " failed: ", error.what()));
      throw;
    }
  });
}

std::string text_of(const std::exception_ptr& failure) {
  if (!failure) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) { return error.what(); }
}

}  // namespace

std::vector<TcpOptions> tcp_options(int n) {
  const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
  std::vector<TcpOptions> all;
  for (int r = 0; r < n; ++r)
    all.push_back({.rank = r,
                   .size = n,
                   .address = to_string(listener->address()),
                   .timeout = std::chrono::seconds(20),
                   .listener = r == 0 ? listener : nullptr});
  return all;
}

std::vector<std::exception_ptr> in_threads(const std::vector<TcpOptions>& options,
                                           const std::function<void(const TcpOptions&)>& f) {
  std::vector<std::exception_ptr> failures(options.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < options.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          f(options[i]);
        } catch (...) { failures[i] = std::current_exception(); }
      });
  }
  return failures;
}

std::vector<std::string> messages(const std::vector<TcpOptions>& options,
                                  const std::function<void(const TcpOptions&)>& f) {
  std::vector<std::string> texts;
  for (const auto& failure : in_threads(options, f)) texts.push_back(text_of(failure));
  return texts;
}

void join(const TcpOptions& options) { make_tcp_communicator(options)->barrier(); }

void on_transports(int n, const std::function<void(std::unique_ptr<TcpTransport>)>& f) {
  for (const auto& failure : in_threads(tcp_options(n), [&](const TcpOptions& tcp) { f(make_tcp_transport(tcp)); }))
    if (failure) std::rethrow_exception(failure);
}

bool has_ranks(int /*n*/) { return true; }
bool has_processes() { return false; }

void on_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options) {
  for (const auto& failure : failures(n, f, options))
    if (failure) std::rethrow_exception(failure);
}

std::vector<std::vector<double>> results(int n, const std::function<std::vector<double>(Communicator&)>& f,
                                         const CommunicatorOptions& options) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(n));
  on_ranks(
      n, [&](Communicator& comm) { all[static_cast<std::size_t>(comm.rank())] = f(comm); }, options);
  return all;
}

std::vector<std::string> messages(int n, const std::function<void(Communicator&)>& f,
                                  const CommunicatorOptions& options) {
  std::vector<std::string> texts;
  for (const auto& failure : failures(n, f, options)) texts.push_back(text_of(failure));
  return texts;
}

}  // namespace keel::testing
