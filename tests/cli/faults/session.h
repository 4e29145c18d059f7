#pragma once
// One session of a run whose ranks are processes, started by MPI or by hand at an address.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/mpi/processes.h"
#include "tests/cli/start_rank.h"

namespace keel::testing {

enum class Way { mpi, tcp };

// After which a test gives up on processes, and kills them.
inline constexpr auto kDeadline = std::chrono::seconds(20);

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Waits for it; false at the deadline.
template <class F>
bool comes_true(const F& condition) {
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class Session {
 public:
  // `keel train` with those arguments by n ranks, in the sandbox, or each in a folder node-R of it.
  struct Options {
    bool in_own_folders = false;
    bool first_alone = false;  // the others come by start_others(), where no launcher starts them
  };
  Session(const Sandbox& sandbox, Way way, int n, std::string arguments, const Options& options)
      : sandbox_(sandbox), way_(way), n_(n), arguments_("train text.yaml " + std::move(arguments)), options_(options) {
    if (way == Way::tcp) {
      start_ranks(options.first_alone ? 1 : n);
      return;
    }
    std::string program = concat("launch -N ", n, ' ');
    if (options.in_own_folders)
      program += concat("sh -c 'cd node-$OMPI_COMM_WORLD_RANK && exec ", KEEL_PROGRAM, " \"$@\"' rank ");
    processes_.push_back(std::make_unique<RunningProgram>(program + arguments_, sandbox / "", before()));
  }
  ~Session() {
    if (!has_ended()) kill_all();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Way way() const { return way_; }
  bool has_ended() const {
    return std::all_of(processes_.begin(), processes_.end(), [](const auto& each) { return each->has_ended(); });
  }

  void start_others() {
    if (way_ == Way::tcp) start_ranks(n_);
  }

  // Whether it has trained a step.
  bool trains(const char* run = "made") const {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(sandbox_ / concat(run, "/metrics.jsonl"), error);
    return !error && bytes > 0;
  }

  bool has_said(const std::string& text) const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [&](const auto& each) { return each->said_so_far().find(text) != std::string::npos; });
  }

  // Without a launcher: of the first rank, and to it.
  bool launcher_hears(int signal_number) const { return processes_.front()->hears(signal_number); }
  void send_to_launcher(int signal_number) const { processes_.front()->send(signal_number); }
  void send_to_rank(int rank, int signal_number) const {
    if (way_ == Way::tcp) return processes_[static_cast<std::size_t>(rank)]->send(signal_number);
    if (const pid_t id = process_of_rank(rank, sandbox_ / ""); id != 0) ::kill(id, signal_number);
  }
  void send_to_all_ranks(int signal_number) const {
    for (int r = 0; r < n_; ++r) send_to_rank(r, signal_number);
  }
  // As when a machine loses its power: the launcher and what it started end, too.
  void kill_all() const {
    for (const std::string& id : lines_of(processes_in(sandbox_ / ""))) ::kill(std::stoi(id), SIGKILL);
  }

  // The exit codes of the processes that were started here, and what all of them said.
  struct End {
    bool was_in_time = false;
    std::vector<int> codes = {};
    std::string out = {}, err = {};
  };
  End wait() {
    End end{.was_in_time = comes_true([&] { return has_ended(); })};
    if (!end.was_in_time) kill_all();
    for (const auto& process : processes_) {
      const Outcome outcome = process->wait();
      end.codes.push_back(outcome.code);
      end.out += outcome.out;
      end.err += outcome.err;
    }
    return end;
  }

 private:
  std::string before() const {
    // Several sessions share the processors of a test.
    return concat("export OMPI_MCA_mpi_yield_when_idle=1 KEEL_TIMEOUT=", kDeadline.count() / 2, " TMPDIR='",
                  sandbox_ / "tmp", "'");
  }
  // Up to so many.
  void start_ranks(int n) {
    while (std::ssize(processes_) < n) {
      const std::size_t rank = processes_.size();
      const std::string folder = sandbox_ / (options_.in_own_folders ? concat("node-", rank) : "");
      processes_.push_back(start_rank(port_, rank, static_cast<std::size_t>(n_), arguments_, folder, before()));
    }
  }

  const Sandbox& sandbox_;
  Way way_;
  int n_;
  std::string arguments_;
  Options options_;
  FreePort port_;
  Processes processes_;  // over MPI the launcher alone
};

}  // namespace keel::testing
