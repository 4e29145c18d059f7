#include "tcp_launcher.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "keel/runtime/error.h"
#include "machine.h"
#include "process.h"
#include "rank_report.h"
#include "ranks.h"
#include "started_ranks.h"

namespace keel::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Variables = std::vector<std::pair<std::string, std::string>>;

// A free port of this machine, which nobody is likely to take before rank 0 does.
int free_port() {
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  const bool found = ::bind(file, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                     ::getsockname(file, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(file);
  KEEL_CHECK(found, "this machine has no free port: ", std::strerror(errno));
  return ntohs(address.sin_port);
}

// Between the ports of services and those that systems give to clients.
int likely_port(std::random_device& random) { return 20'000 + static_cast<int>(random() % 10'000); }

bool is_this_machine(const std::string& host) { return host.empty() || host == "localhost" || host == host_name(); }

std::string shell_quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + '\'';
}

// What ranks on other hosts get of this process's environment.
Variables environment_for_hosts() {
  Variables found;
  for (char** each = ::environ; *each != nullptr; ++each) {
    const std::string_view text(*each);
    const std::size_t end = text.find('=');
    if (end == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, end);
    const bool goes =
        name.starts_with("KEEL_") || name.starts_with("OMP_") || name == "LD_LIBRARY_PATH" || name == "TERM";
    if (goes && name != StartedRanks::kVariable) found.emplace_back(name, text.substr(end + 1));
  }
  return found;
}

// A host that is gone is noticed after a quarter of a minute.
std::vector<std::string> over_ssh(const std::string& host, const Variables& of_rank,
                                  const std::vector<std::string>& command) {
  std::string line = concat("cd ", shell_quoted(std::filesystem::current_path().string()), " && exec env");
  for (const Variables& environment : {environment_for_hosts(), of_rank})
    for (const auto& [name, value] : environment) line += concat(' ', shell_quoted(concat(name, '=', value)));
  for (const std::string& word : command) line += ' ' + shell_quoted(word);
  return {"ssh",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=10",
          "-o",
          "ServerAliveInterval=5",
          "-o",
          "ServerAliveCountMax=3",
          host,
          line};
}

class Ranks {
 public:
  Ranks(const std::vector<std::string>& command, bool keeps_going) : command_(command), keeps_going_(keeps_going) {}
  ~Ranks() {
    for (const Rank& rank : ranks_) ::close(rank.signals);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(int rank, const std::string& host, const Variables& environment) {
    std::array<int, 2> ends = {};
    KEEL_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
    const bool is_here = is_this_machine(host);
    const std::vector<std::string> words = is_here ? command_ : over_ssh(host, environment, command_);
    const pid_t child = ::fork();
    KEEL_CHECK(child >= 0, "cannot start a process: ", std::strerror(errno));
    if (child == 0) become(words, is_here ? environment : Variables{}, ends[0]);
    ::close(ends[0]);
    ranks_.push_back({child, ends[1], rank, is_here ? "" : host});
  }

  int run() {
    sigset_t waiting = signals_passed_on();
    sigaddset(&waiting, SIGCHLD);
    constexpr timespec kNowAndThen = {0, 50'000'000};
    while (!ranks_.empty()) {
      reap();
      end_what_is_late();
      if (ranks_.empty()) break;
      const int number = ::sigtimedwait(&waiting, nullptr, &kNowAndThen);
      if (number == SIGUSR1 || number == SIGUSR2) send(number);
      else if (number == SIGINT || number == SIGTERM || number == SIGHUP) end_all(128 + SIGTERM, Clock::now());
    }
    if (!keeps_going_) return code_;
    return has_ended_well_ ? 0 : stop_code_ != 0 ? stop_code_ : code_;
  }

 private:
  struct Rank {
    pid_t process;
    int signals;  // the end of a pipe
    int number;
    std::string host;  // empty: this one
  };

  [[noreturn]] static void become(const std::vector<std::string>& words, const Variables& environment, int signals) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(signals, STDIN_FILENO);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    const sigset_t mask = mask_for_exec(false);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    ::execvp(pointers[0], pointers.data());
    const std::string error = concat("keel: error: cannot start '", words[0], "': ", std::strerror(errno), '\n');
    static_cast<void>(!::write(STDERR_FILENO, error.data(), error.size()));
    ::_exit(127);
  }

  void reap() {
    std::erase_if(ranks_, [&](const Rank& rank) {
      int status = 0;
      if (::waitpid(rank.process, &status, WNOHANG) != rank.process) return false;
      ::close(rank.signals);
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (!was_terminated_ && !is_a_stop(code)) tell_if_lost(rank, status);
      has_ended_well_ = has_ended_well_ || code == 0;
      if (code != 0 && keeps_going_ && !is_a_stop(code)) {
        if (code_ == 0) code_ = code;
        return true;
      }
      if (is_a_stop(code)) stop_code_ = code;
      // Ranks that stop in order end when they have saved.
      if (code != 0)
        end_all(code, Clock::now() + (is_a_stop(code) ? std::chrono::seconds(30) : std::chrono::seconds(1)));
      return true;
    });
  }

  // The process around a rank says how the rank ended, unless it goes with it.
  void tell_if_lost(const Rank& rank, int status) const {
    constexpr int kSshFailed = 255;
    RankReport report = {RankReport::What::killed, rank.number};
    if (WIFSIGNALED(status)) {
      report.number = WTERMSIG(status);
      report.text = concat("is lost: what stands around it was killed by signal ", report.number, " (",
                           ::strsignal(report.number), "; process ", rank.process, " on ", host_name(), ")");
    } else if (keeps_going_ && !rank.host.empty() && WEXITSTATUS(status) == kSshFailed) {
      report.text = concat("is lost: ssh has no connection to ", rank.host, " any more");
    } else {
      return;
    }
    std::cerr << concat("keel: error: rank ", report.rank, ' ', report.text, '\n') << std::flush;
    tell_launcher(report);
  }

  void end_all(int code, Clock::time_point when) {
    if (code_ == 0) code_ = code;
    terminate_at_ = std::min(terminate_at_.value_or(when), when);
  }

  void end_what_is_late() {
    if (!terminate_at_ || Clock::now() < *terminate_at_) return;
    if (!std::exchange(was_terminated_, true)) send(SIGTERM);
    if (Clock::now() < *terminate_at_ + std::chrono::seconds(1)) return;
    for (const Rank& rank : ranks_) ::kill(rank.process, SIGKILL);
  }

  void send(int number) const {
    const char byte = static_cast<char>(number);
    for (const Rank& rank : ranks_) static_cast<void>(!::write(rank.signals, &byte, 1));
  }

  const std::vector<std::string>& command_;
  const bool keeps_going_;
  std::vector<Rank> ranks_;
  int code_ = 0;       // of the first that has failed
  int stop_code_ = 0;  // of ranks that have ended since they were asked to
  bool has_ended_well_ = false;
  std::optional<Clock::time_point> terminate_at_;
  bool was_terminated_ = false;
};

}  // namespace

int launch_over_tcp(int ranks, const std::vector<Host>& hosts, const Machines& machines,
                    const std::vector<std::string>& command, bool keeps_going) {
  const HeldSignals held;
  ::signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> places;
  for (const Host& host : hosts) places.insert(places.end(), static_cast<std::size_t>(host.ranks), host.name);
  places.resize(static_cast<std::size_t>(ranks));
  const bool all_here = std::all_of(places.begin(), places.end(), is_this_machine);
  std::random_device random;
  const std::string first = all_here ? "127.0.0.1" : is_this_machine(places[0]) ? host_name() : places[0];
  const bool meets_others = machines.count > 1;
  const std::string address = meets_others
                                  ? machines.address
                                  : concat(first, ':', is_this_machine(places[0]) ? free_port() : likely_port(random));
  // Nobody but a person could tell other machines one.
  const char* const own_token = std::getenv("KEEL_TOKEN");
  const std::string token = !meets_others          ? concat(std::hex, random(), random())
                            : own_token == nullptr ? ""
                                                   : own_token;
  std::vector<std::string> around = {own_path(), "launch", "--rank"};
  around.insert(around.end(), command.begin(), command.end());
  Ranks started(around, keeps_going);
  for (int rank = 0; rank < ranks; ++rank)
    started.start(machines.number * ranks + rank, places[static_cast<std::size_t>(rank)],
                  {{"KEEL_RANK", std::to_string(machines.number * ranks + rank)},
                   {"KEEL_SIZE", std::to_string(machines.count * ranks)},
                   {"KEEL_ADDRESS", address},
                   {"KEEL_TOKEN", token},
                   {kLedVariable, "1"}});
  return started.run();
}

void follow_launcher() {
  if (std::getenv(kLedVariable) == nullptr) return;
  ::unsetenv(kLedVariable);
  const int signals = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  sigset_t all, before;  // the thread takes none of them
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([signals] {
    for (char number = 0; ::read(signals, &number, 1) == 1;) ::kill(::getpid(), number);
    // Nobody is left to whom the rank could say anything.
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    ::kill(::getpid(), SIGKILL);
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace keel::cli
