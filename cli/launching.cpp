#include "launching.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "keel/runtime/error.h"
#include "launcher_strays.h"
#include "machine.h"
#include "process.h"

namespace keel::cli {
namespace {

// After a request to end at once.
constexpr auto kUntilTerminated = std::chrono::seconds(3), kUntilKilled = std::chrono::seconds(6);

// The launcher would say so in a page of its own.
void check_temporary_folder() {
  const char* folder = std::getenv("TMPDIR");
  if (folder == nullptr || *folder == 0 || ::access(folder, W_OK | X_OK) == 0) return;
  throw Error(concat("TMPDIR is '", folder, "', where the launcher cannot write (", std::strerror(errno),
                     "); name another folder, or none for /tmp"),
              ErrorKind::io);
}

void show(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) return;
    at += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
}

}  // namespace

// Hydra dies of SIGUSR2, and Open MPI speaks of SIGALRM.
int as_terminate(Launcher::Kind kind) { return kind == Launcher::Kind::hydra ? SIGALRM : SIGUSR2; }

bool takes_stops(const std::vector<std::string>& command) {
  return command.size() > 1 && command[0] == own_path() && names_command(command[1]) && !names_answering(command[1]);
}

std::vector<std::string> program_of(const LaunchPlan& plan) {
  const auto around = std::find(plan.command.begin(), plan.command.end(), "--rank");
  return {around == plan.command.end() ? plan.command.begin() : around + 1, plan.command.end()};
}

bool is_here(const LaunchPlan& plan) { return plan.hosts.empty() && plan.launcher != Launcher::Kind::slurm; }

SessionEnd Launching::run(AsksToEnd asks_to_end) {
  check_temporary_folder();
  const char* temporary = std::getenv("TMPDIR");
  if (plan_.launcher == Launcher::Kind::open_mpi)
    remove_launcher_strays(temporary == nullptr || *temporary == 0 ? "/tmp" : temporary);
  asks_to_end_ = std::move(asks_to_end);
  ProcessOptions options;
  options.environment = plan_.environment;
  options.environment.emplace_back(StartedRanks::kVariable, started_.address());
  options.signal_at_our_death = SIGTERM;
  options.reads_terminal = false;
  options.on_signal = [this](pid_t child, int number) { take_signal(child, number); };
  options.on_wait = [this](pid_t child) { look(child); };
  options.waits_from_the_start = asks_to_end_ != nullptr;
  if (plan_.reports) options.on_error_text = [this](std::string_view text) { show(reports_.pass(text)); };
  const ProcessEnd end = run_process(plan_.command, options);
  if (end.signal != 0) started_.kill_those_left();
  end_.code = code_of(end.code, end.signal);
  end_.reports = reports_.reports();
  return end_;
}

void Launching::take_signal(pid_t child, int number) {
  const bool is_first = end_.user_signal == 0;
  end_.user_signal = number;
  // The ranks save and end already, and a second signal would end them at once.
  if (end_.was_to_grow && is_first) return;
  pass_on(child, number);
}

void Launching::pass_on(pid_t child, int number) {
  if (number == SIGUSR2 && takes_stops(program_of(plan_))) {  // which asks ranks to end, where it comes from here
    show("keel: SIGUSR2 asks for a checkpoint: send it to the process of a rank, not to keel launch\n");
    return;
  }
  if (number == SIGUSR1) number = SIGTERM;  // what the ranks take it for
  last_ = number;
  started_.wait(child);
  if (number == SIGINT && ++interrupts_ <= 2) ::kill(child, kAsInterrupt);
  else if (number == SIGTERM && ++terminations_ <= 1) ::kill(child, as_terminate(plan_.launcher));
  else if (number == SIGINT || number == SIGTERM || number == SIGHUP) was_terminated_ = ::kill(child, SIGTERM) == 0;
  else ::kill(child, number);
  if (!hurried_ && (interrupts_ >= 2 || was_terminated_)) hurried_ = Clock::now();
}

void Launching::look(pid_t child) {
  if (asks_to_end_ && !end_.was_to_grow && end_.user_signal == 0 && asks_to_end_(reports_.reports())) {
    end_.was_to_grow = true;
    pass_on(child, SIGTERM);
  }
  end_what_hangs(child);
}

// A second request means at once. A rank that dies of it in the midst of its end may leave the others, or the
// launcher, in a wait for it that nothing ends.
void Launching::end_what_hangs(pid_t child) {
  if (!hurried_) return;
  const auto waited = Clock::now() - *hurried_;
  if (waited >= kUntilKilled) was_killed_ = ::kill(child, SIGKILL) == 0;
  else if (waited >= kUntilTerminated && !was_terminated_) was_terminated_ = ::kill(child, SIGTERM) == 0;
}

int Launching::code_of(int exit_code, int signal_number) {
  const int code = signal_number == 0 ? exit_code : 128 + signal_number;
  // A launcher that had not started yet dies of what was to be passed on.
  const bool was_early = signal_number == kAsInterrupt || signal_number == as_terminate(plan_.launcher);
  const bool was_ended = was_killed_ || (was_terminated_ && code != 0);
  if (last_ != 0 && (was_early || was_ended)) return 128 + last_;
  // Open MPI's mpirun ends with 1 when it is asked to end. Of other programs nobody knows whether they said that.
  if (code == 1 && takes_stops(program_of(plan_)) && started_.were_terminated())
    return 128 + (last_ == 0 ? SIGTERM : last_);
  return code;
}

}  // namespace keel::cli
