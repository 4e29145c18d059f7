// A meeting whose connections stay silent, and one whose host can open no more files.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "keel/dist/comm/tcp_meeting.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/tcp/tcp_ranks.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using namespace std::chrono_literals;

bool has_ended(const Socket& socket) {
  char any = 0;
  return socket.receive_some(&any, 1) < 0;
}

TEST(TcpMeeting, AConnectionThatStaysSilentIsClosedInTime) {
  std::vector<TcpOptions> options = tcp_options(2);
  options[0].patience = 50ms;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const TcpAddress address = options[0].listener->address();
  EXPECT_EQ(messages(options,
                     [&](const TcpOptions& mine) {
                       if (mine.rank == 0) return join(mine);
                       const Socket silent = connect_to(address, "rank 0", deadline);
                       const Socket hesitant = connect_to(address, "rank 0", deadline);
                       hesitant.send_some("keel", 4);
                       for (const Socket* socket : {&silent, &hesitant}) {
                         pollfd wait{socket->file(), POLLIN, 0};
                         EXPECT_EQ(::poll(&wait, 1, 20'000), 1);
                         EXPECT_TRUE(has_ended(*socket));
                       }
                       join(mine);
                     }),
            std::vector<std::string>(2));
}

// Rank 0 in a process of its own that may open so many files; returns what it said by its end.
class LimitedHost {
 public:
  LimitedHost(const TcpOptions& options, rlim_t files, const std::function<void(const TcpOptions&)>& f) {
    int ends[2] = {-1, -1};
    KEEL_CHECK(::pipe(ends) == 0, "no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      const rlimit few = {files, files};
      ::setrlimit(RLIMIT_NOFILE, &few);
      const std::string said = error_of([&] { f(options); });
      ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    end_ = Socket(ends[0]);
  }
  std::string said() {
    std::string text(1'000, '\0');
    const ssize_t length = ::read(end_.file(), text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    int status = -1;
    ::waitpid(process_, &status, 0);
    EXPECT_EQ(status, 0);
    return text;
  }

 private:
  pid_t process_ = -1;
  Socket end_;
};

TEST(TcpMeeting, SilentConnectionsKeepNoRankOutWhereFilesRunOut) {
  std::vector<TcpOptions> options = tcp_options(3);
  for (TcpOptions& one : options) one.timeout = 20s;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  LimitedHost host(options[0], 40, join);
  options[0].listener.reset();  // it is the host's
  const TcpAddress address = TcpAddress::parse(options[0].address);
  std::vector<Socket> silent;
  for (int i = 0; i < 150; ++i) silent.push_back(connect_to(address, "rank 0", deadline));
  options.erase(options.begin());
  EXPECT_EQ(messages(options, join), std::vector<std::string>(2));
  EXPECT_EQ(host.said(), "");
}

void open_all_files() {
  while (::dup(STDERR_FILENO) >= 0) continue;
}

TEST(TcpMeeting, SaysThatFilesRanOutWhereARankCouldNotBeLetIn) {
  std::vector<TcpOptions> options = tcp_options(2);
  options[0].timeout = 500ms;
  LimitedHost host(options[0], 40, [](const TcpOptions& mine) {
    open_all_files();
    join(mine);
  });
  options[0].listener.reset();
  const std::string refused = messages({options[1]}, join)[0];
  EXPECT_NE(refused.find("ended before all ranks had come"), std::string::npos) << refused;
  const std::string said = host.said();
  EXPECT_TRUE(said.starts_with("rank 1 of 2 did not come to ")) << said;
  EXPECT_TRUE(said.ends_with(" within 500 ms; rank 0 can open no more files, see ulimit -n")) << said;
}

TEST(TcpMeeting, WaitsForFilesToBeClosed) {
  std::vector<TcpOptions> options = tcp_options(2);
  LimitedHost host(options[0], 40, [](const TcpOptions& mine) {
    open_all_files();
    const std::jthread closes([] {
      std::this_thread::sleep_for(150ms);
      for (int file = 20; file < 40; ++file) ::close(file);
    });
    join(mine);
  });
  options[0].listener.reset();
  EXPECT_EQ(messages({options[1]}, join)[0], "");
  EXPECT_EQ(host.said(), "");
}

TEST(TcpMeeting, RefusesMoreRanksThanThereCanBe) {
  EXPECT_EQ(error_of([] { join({.rank = 0, .size = 99'999'999, .address = "127.0.0.1:9"}); }),
            "at most 1048576 ranks can find each other by an address, got 99999999");
  for (const int size : {40, 50, 1'048'576}) {
    LimitedHost host({.rank = 0, .size = size, .address = "127.0.0.1:9"}, 40, join);
    EXPECT_EQ(host.said(), concat(size,
                                  " ranks need a connection each, and this process may open 40 files; raise that "
                                  "by ulimit -n, or start the ranks by MPI"));
  }
}

}  // namespace
}  // namespace keel
