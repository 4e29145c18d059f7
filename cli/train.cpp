// `keel train`: one run from a configuration, with progress on the console.

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bar.h"
#include "commands.h"
#include "common_options.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/regroup.h"
#include "keel/runtime/memory_limit.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/schema.h"
#include "keel/trainer/signals.h"
#include "keel/trainer/trainer.h"
#include "launched.h"
#include "machine.h"
#include "network.h"
#include "program_keys.h"
#include "rank_logs.h"
#include "ranks.h"

namespace keel::cli {
namespace {

constexpr const char* kTrainFooter = R"(
Examples:
  keel train c.yaml
  keel train c.yaml steps=500 optimizer.lr=3e-4 'model={layers: 2, heads: 2, width: 64}'
  keel train c.yaml resume=auto        go on where the run was stopped
  keel train c.yaml --thread-ranks 4 --delay 200 --bandwidth 100M      as if on a slower network
  keel train c.yaml --deepspeed_config_file ds.json        what DeepSpeed's JSON says, beside it
  keel train c.yaml --print-config     what would be trained, with every default filled in

Ctrl-C, SIGTERM and SIGUSR1 finish the step, save and end; a second Ctrl-C ends at once. SIGUSR2 saves, and the run goes on.
Before a run's first step nothing is there to save: Ctrl-C and SIGTERM end it at once, also where a file does not answer.)";

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  int thread_ranks = 0;
  bool print_config = false;
  NetworkArguments network;
  FilesBeside beside;
};

class Console : public ConsoleObserver {
 public:
  explicit Console(const SignalScope& signals)
      : ConsoleObserver(std::cout, console_options(STDOUT_FILENO)), signals_(signals) {}
  void on_reading(std::uint64_t done, std::uint64_t all) override {
    if (!bar_) bar_.emplace("indexing", kPatience);
    bar_->show(done, all);
    if (done == all) bar_.reset();
  }
  void on_begin() override { signals_.end_at_once(false); }
  bool stop_requested() override { return signals_.received() != 0; }
  bool save_requested() override { return signals_.takes_save_request(); }

 private:
  static constexpr double kPatience = 0.5;  // seconds, within which most files are indexed

  const SignalScope& signals_;
  std::optional<Bar> bar_;
};

// A rank that shows nothing until it is the first.
class SilentObserver : public TrainObserver {
 public:
  explicit SilentObserver(const SignalScope& signals) : signals_(signals) {}
  void on_first() override {
    if (console_options(STDOUT_FILENO).terminal) std::cout << '\n';  // below the line of the rank that was lost
    console_.emplace(signals_);
  }
  void on_step(const StepReport& report) override {
    if (console_) console_->on_step(report);
  }
  void on_eval(const EvalReport& report) override {
    if (console_) console_->on_eval(report);
  }
  void on_checkpoint(const CheckpointReport& report) override {
    if (console_) console_->on_checkpoint(report);
  }
  void on_message(LogLevel level, std::string_view message) override {
    if (console_) console_->on_message(level, message);
  }
  void on_begin() override { signals_.end_at_once(false); }
  bool stop_requested() override { return signals_.received() != 0; }
  bool save_requested() override { return signals_.takes_save_request(); }

 private:
  const SignalScope& signals_;
  std::optional<Console> console_;
};

// "memory: peak 12.3 MiB (parameter 2.0 MiB, ...), resident 80.1 MiB". The parts peak at different moments.
std::string memory_line(const TrainResult& result) {
  const MemoryReport& memory = result.memory;
  std::string parts;
  for (int i = 0; i < kPurposeCount; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    if (const std::size_t peak = memory[purpose].peak; peak > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name_of(purpose), binary_size(double(peak)));
  }
  return fmt::format("memory: peak {} ({}), resident {}", binary_size(double(memory.total.peak)), parts,
                     binary_size(double(result.peak_resident_bytes)));
}

// What to say about threads that share a processor; empty: nothing.
std::string thread_warning(const Config& config, const TrainArguments& arguments) {
  const int threads = config.threads > 0 ? config.threads * std::max(1, arguments.thread_ranks) : default_threads();
  const int processors = usable_processors();
  if (threads <= processors) return "";
  return fmt::format("{} threads share the {} processor{} that this process may use", threads, processors,
                     processors == 1 ? "" : "s");
}

TrainResult train_on(Communicator& given, const Config& config, const Network& network, const TrainArguments& arguments,
                     const SignalScope& signals, const Callbacks& callbacks) {
  std::unique_ptr<Communicator> slow;
  if (network.is_slow() && given.size() > 1) slow = given.regroup({.network = network});
  Communicator& group = slow ? *slow : given;
  if (group.rank() != 0) {
    SilentObserver silent(signals);
    return train(config, silent, group, callbacks);
  }
  Console console(signals);
  if (const std::string warning = thread_warning(config, arguments); !warning.empty())
    console.on_message(LogLevel::warning, warning);
  if (slow) console.on_message(LogLevel::warning, concat("as on a slower network: ", describe(network)));
  return train(config, console, group, callbacks);
}

// What follows "keel" where a run with so many ranks is started.
std::string start_command(int ranks, const TrainArguments& arguments) {
  if (ranks == 1) return "train";
  return fmt::format("launch -N {}{}", ranks, arguments.thread_ranks > 0 ? " --threads" : "");
}

// The signal that some rank got: all of them end with its code. Without ranks that are gone nobody tells.
int number_of_stop(Communicator& group, const SignalScope& signals, const TrainResult& result) {
  std::vector<int> received = {signals.received()};
  if (result.dropped_groups == 0) received = gather_values(group, received.front());
  for (const int each : received)
    if (each != 0) return each;
  return SIGTERM;
}

const char* name_of_stop(int number) { return number == SIGINT ? "Ctrl-C" : "SIGTERM"; }

// Whether some rank was asked to end while ranks looked for each other, by that signal; 0: none. A rank that was asked
// later, and ended at once, leaves those to whom it does not answer.
int asked_at_the_meeting(Communicator& group, const SignalScope& signals) {
  try {
    for (const int each : gather_values(group, signals.received()))
      if (each != 0) return each;
    return 0;
  } catch (const Error&) {
    if (signals.received() != 0) return signals.received();
    throw;
  }
}

int run_rank(Communicator& group, const TrainArguments& arguments, const SignalScope& signals, RankLogs& logs) {
  if (const int number = asked_at_the_meeting(group, signals); number != 0) {
    if (group.rank() == 0) std::cout << "stopped by " << name_of_stop(number) << " before the first step\n";
    return 128 + number;
  }
  signals.end_at_once(true);
  Config config;
  Network network;
  Callbacks callbacks;
  together(group, [&] {
    FilesBeside beside = arguments.beside;
    beside.ranks = group.size();
    config = read_configuration(arguments.config, arguments.overrides, group.rank() == 0, beside);
    network = network_of(arguments.network, config.sharding.group);
    callbacks = program_callbacks(config);
  });
  logs.set_run(config.run);
  const TrainResult result = train_on(group, config, network, arguments, signals, callbacks);
  const bool was_stopped = result.end == TrainEnd::stopped;
  const int number = was_stopped ? number_of_stop(group, signals, result) : 0;
  if (result.is_first) {
    std::cout << memory_line(result) << '\n';
    if (was_stopped)
      std::cout << "stopped by " << name_of_stop(number) << "; to go on: keel "
                << start_command(group.size(), arguments) << ' ' << config.run << "/config.yaml resume=auto\n";
  }
  return was_stopped ? 128 + number : 0;
}

int run(const TrainArguments& arguments) {
  const SignalScope signals;
  if (arguments.print_config) {
    signals.end_at_once(true);
    const auto launched = find_launched();
    const bool is_first = !launched || launched->rank == 0;
    FilesBeside beside = arguments.beside;
    beside.ranks = launched ? launched->size : arguments.thread_ranks;
    const Config config = read_configuration(arguments.config, arguments.overrides, is_first, beside);
    if (is_first) std::cout << to_yaml(config);
    return 0;
  }
  RankLogs logs;
  return on_ranks(arguments.thread_ranks,
                  [&](Communicator& group) { return run_rank(group, arguments, signals, logs); },
                  {.is_worried = [&] { return signals.received() == SIGTERM; },
                   .log = [&](int rank, const std::string& line) { logs.write(rank, line); }});
}

}  // namespace

Command train_command() {
  const auto arguments = std::make_shared<TrainArguments>();
  Command command = {
      .name = "train",
      .help = "Train a model as a YAML file describes it.",
      .positionals = {configuration(&arguments->config), overrides(&arguments->overrides)},
      .options = {{"--thread-ranks",
                   "N",
                   {&arguments->thread_ranks, 1, 1024},
                   "Train on that many ranks, as threads of this process; `keel launch` starts ranks that are "
                   "processes."},
                  deepspeed_file(&arguments->beside),
                  accelerate_file(&arguments->beside),
                  {"--print-config", "", &arguments->print_config, "Print the resolved configuration and end."},
                  {"--help-config", "", Value::shown([] { return config_help(*program_keys()); }),
                   "List all keys of a configuration and end."}},
      .footer = kTrainFooter,
      .run = [arguments](const Call&) { return run(*arguments); }};
  const std::vector<Option> network = network_options(&arguments->network);
  command.options.insert(command.options.begin() + 1, network.begin(), network.end());
  return command;
}

}  // namespace keel::cli
