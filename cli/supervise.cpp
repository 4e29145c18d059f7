#include "supervise.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "elastic.h"
#include "host_check.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file_lock.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config.h"
#include "keel/trainer/run_folder.h"
#include "launching.h"
#include "process.h"
#include "program_keys.h"

namespace keel::cli {
namespace {

using Clock = std::chrono::steady_clock;

// In which a host that can start ranks does so.
constexpr std::chrono::seconds kHostAnswers{8};
// For which ranks of a dead host may keep the run's folder: as long as a file server waits for a host's word.
constexpr std::chrono::seconds kFolderIsFree{120};

void say(const std::string& line) { std::cerr << concat("keel: ", printable(line), '\n') << std::flush; }

// The signal that somebody has sent while nothing took it; 0: none.
int signal_that_waits() {
  sigset_t waiting;
  ::sigpending(&waiting);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (sigismember(&waiting, number) == 1) return number == SIGUSR1 ? SIGTERM : number;
  return 0;
}

// Has `keel train` print what it makes of the words for it; nothing where it refuses them.
std::vector<std::string> printing_the_configuration(const LaunchPlan& plan) {
  std::vector<std::string> command = program_of(plan);
  command.insert(command.begin() + 2, "--print-config");
  return command;
}

std::string length_of(const Config& config) {
  return config.epochs > 0 ? concat(config.epochs, " epochs") : concat("step ", config.steps);
}

// Whether one is made before the run's end, from which a restart could go on. Nobody knows how many steps an epoch has
// before the data is opened: a distance in epochs and a run in steps are not compared.
bool makes_checkpoints(const Config& config) {
  const auto comes = [&](const Length& every) {
    if (every.is_none()) return false;
    if (every.percent() > 0) return every.percent() < 100;
    if (every.epochs() > 0) return config.epochs == 0 || every.epochs() < config.epochs;
    return config.epochs > 0 || every.steps() < config.steps;
  };
  return comes(config.checkpoint.every) || comes(config.checkpoint.memory_every) || config.checkpoint.minutes > 0;
}

class Supervisor {
 public:
  Supervisor(const SupervisionWish& supervision, LaunchWish wish, const Machine& machine)
      : supervision_(supervision), wish_(std::move(wish)), machine_(machine), first_(plan_first()) {
    KEEL_CHECK(supervision.min_ranks <= first_.ranks, "--min-ranks ", supervision.min_ranks, " is more than the ",
               first_.ranks, " ranks of the run");
    ranks_ = first_.ranks;
    standing_.slots = slots_of(first_.hosts, first_.ranks);
  }

  const LaunchPlan& first() const { return first_; }

  int run(const Config& config) {
    const RunFolder folder(config.run);
    rules_ = {first_.ranks, supervision_.min_ranks, supervision_.restarts, config.batch.global, config.sharding.group};
    for (LaunchPlan plan = first_;; plan = plan_next(folder, config)) {
      const SessionEnd session = Launching(plan).run(asks_to_end());
      const Ending ending = ending_of(session);
      look_around(ending, folder, config);
      const NextStart next = decide(ending, standing_, rules_);
      if (!next.line.empty()) say(next.line);
      if (!next.starts) return code_of(session);
      standing_.slots = next.slots;
      standing_.used += next.is_restart ? 1 : 0;
      ranks_ = next.ranks;
      if (const int number = wait_for_folder(folder); number != 0) return 128 + number;
    }
  }

 private:
  LaunchPlan plan_first() {
    wish_.reports = true;
    return plan_launch(wish_, machine_);
  }

  LaunchPlan plan_next(const RunFolder& folder, const Config& config) const {
    LaunchWish wish = wish_;
    wish.ranks = {ranks_, std::nullopt};
    wish.hosts = hosts_of(standing_.slots);
    if (goes_on_by_itself(folder, config)) wish.command.emplace_back("resume=auto");
    LaunchPlan plan = plan_launch(wish, machine_);
    if (const std::string gpus = gpus_left(); !gpus.empty())
      plan.environment.emplace_back("CUDA_VISIBLE_DEVICES", gpus);
    return plan;
  }

  // A run that began from another's checkpoint begins there again until it has one of its own.
  static bool goes_on_by_itself(const RunFolder& folder, const Config& config) {
    const bool has_beginning = config.resume != "auto" && config.resume != "never";
    return !has_beginning || !folder.checkpoint_steps().empty();
  }

  // Of this machine, where each place has a GPU and one is left out.
  std::string gpus_left() const {
    if (!is_here(first_) || (!any_is_left_out(standing_.slots) && ranks_ == first_.ranks)) return "";
    std::string list = machine_.visible_gpus;
    for (const auto& [name, value] : first_.environment)
      if (name == "CUDA_VISIBLE_DEVICES") list = value;
    std::vector<std::string> names;
    std::istringstream words(list);
    for (std::string name; std::getline(words, name, ',');) names.push_back(name);
    if (list.empty())
      for (int i = 0; i < machine_.gpus; ++i) names.push_back(std::to_string(i));
    return machine_.gpus == 0 ? "" : gpus_in_use(standing_.slots, names);
  }

  // What the decision needs to know.
  void look_around(const Ending& ending, const RunFolder& folder, const Config& config) {
    const bool may_have_lost_hosts = ending.why == Ending::Why::died || ending.why == Ending::Why::no_start;
    if (may_have_lost_hosts) {
      HostCheck check(host_names(standing_.slots, false), machine_, kHostAnswers);
      check.wait();
      standing_.silent = check.silent();
    } else if (ending.why == Ending::Why::grows) {
      standing_.silent = silent_at_rejoin_;
    }
    const std::vector<std::int64_t> steps = folder.checkpoint_steps();
    standing_.step = steps.empty() ? std::nullopt : std::optional(steps.back());
    std::error_code ignored;
    standing_.may_have_copies =
        goes_on_by_itself(folder, config) && std::filesystem::exists(folder.memory_session(), ignored);
  }

  // Whether more ranks could go on than now do, asked every so many seconds from when places are left out.
  Launching::AsksToEnd asks_to_end() {
    if (supervision_.rejoin == 0 || (!wish_.keeps_going && !any_is_left_out(standing_.slots))) return {};
    next_look_.reset();
    check_.reset();
    return [this](const std::vector<RankReport>& reports) {
      const Slots slots = wish_.keeps_going ? slots_at_work(standing_.slots, reports) : standing_.slots;
      if (!any_is_left_out(slots)) return false;
      const auto now = Clock::now();
      if (!next_look_) next_look_ = now + std::chrono::seconds(supervision_.rejoin);
      if (check_ == nullptr) {
        if (now < *next_look_) return false;
        check_ = std::make_unique<HostCheck>(host_names(slots, true), machine_, kHostAnswers);
      }
      if (!check_->is_over()) return false;
      silent_at_rejoin_ = check_->silent();
      check_.reset();
      next_look_ = now + std::chrono::seconds(supervision_.rejoin);
      return would_grow(slots, silent_at_rejoin_, std::min(ranks_, places_in_use(slots)), rules_);
    };
  }

  // The folder belongs to one session at a time, and processes that were killed may take a while to end. Returns a
  // signal that came meanwhile.
  static int wait_for_folder(const RunFolder& folder) {
    const auto begin = Clock::now();
    for (bool has_told = false;;) {
      if (const int number = signal_that_waits(); number != 0) return number;
      std::error_code ignored;
      if (!std::filesystem::is_directory(folder.path(), ignored)) return 0;
      const auto waited = Clock::now() - begin;
      if (FileLock(folder.lock()).state() != FileLock::State::taken || waited >= kFolderIsFree) return 0;
      if (waited >= std::chrono::seconds(5) && !std::exchange(has_told, true))
        say(concat("ranks that were killed still have '", folder.path(), "'; the restart waits for them"));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  // Of the run's last session. What a user asked for while the ranks ended to grow counts, too.
  static int code_of(const SessionEnd& session) {
    if (session.was_to_grow && session.user_signal != 0 && session.code == 128 + SIGTERM)
      return 128 + (session.user_signal == SIGUSR1 ? SIGTERM : session.user_signal);
    return session.code;
  }

  SupervisionWish supervision_;
  LaunchWish wish_;
  const Machine& machine_;
  LaunchPlan first_;
  RestartRules rules_;
  Standing standing_;
  int ranks_ = 0;
  std::optional<Clock::time_point> next_look_;
  std::unique_ptr<HostCheck> check_;
  std::vector<std::string> silent_at_rejoin_;
};

}  // namespace

void check_supervision(const SupervisionWish& supervision, const LaunchWish& wish) {
  KEEL_CHECK(supervision.restarts > 0 || supervision.min_ranks == 0,
             "--min-ranks says with how many ranks a restart may go on; it "
             "needs --restarts");
  KEEL_CHECK(supervision.rejoin == 0 || supervision.min_ranks > 0 || wish.keeps_going,
             "--rejoin takes back ranks that a restart left out, or that others went on without; "
             "it needs --restarts and --min-ranks, or --keep-going");
  if (!supervision.is_wished(wish)) return;
  KEEL_CHECK(wish.command.empty() || names_training(wish.command[0]),
             supervision.restarts > 0 ? "--restarts" : "--rejoin",
             " is for runs of `keel train`, which go "
             "on from a checkpoint; '",
             wish.command[0].substr(0, 60), "' is none");
  KEEL_CHECK(!wish.threads,
             "--restarts needs ranks that are processes: of --threads, one that dies takes all and the "
             "launcher along; leave --threads out");
}

int supervise(const SupervisionWish& supervision, LaunchWish wish, const Machine& machine) {
  Supervisor supervisor(supervision, std::move(wish), machine);
  const std::vector<std::string> question = printing_the_configuration(supervisor.first());
  const std::string configuration = output_of(question);
  if (configuration.empty()) return run_process(question, {}).code;  // which says why
  const Config config = parse_config(program_keys(), configuration, "the run's configuration");
  KEEL_CHECK(supervision.restarts == 0 || makes_checkpoints(config),
             "--restarts goes on from a checkpoint, and this run makes none before its end, ", length_of(config),
             " (checkpoint.every is ", config.checkpoint.every.text(), ", checkpoint.memory_every ",
             config.checkpoint.memory_every.text(),
             ", checkpoint.minutes 0): make one of the two less than the steps, or give it checkpoint.minutes");
  return supervisor.run(config);
}

}  // namespace keel::cli
