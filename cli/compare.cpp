// `keel compare`: the same training under several strategies, side by side.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "keel/dist/comm/agreement.h"
#include "keel/trainer/compare.h"
#include "launch.h"
#include "launched.h"
#include "ranks.h"

namespace keel::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  keel compare c.yaml -N 2
  keel compare c.yaml -N 4 --strategies zero1-bf16 zero3-bf16 --steps 100
  keel compare c.yaml -N 3 --threads           ranks as threads of one process, without MPI

Every strategy trains the same steps from the same weights, without evaluation and files. "weights" is a fingerprint of
all weights in the end: equal ones mean equal bits. Bytes are those of rank 0 as counted, and by the formulas of
`keel plan`. "exposed" is the time of a step in which rank 0 waited for others. Times are medians.

The exit code is 1 where strategies of the same precision end in different weights, or where a count of bytes is not that
of its formula.)";

struct Arguments {
  std::string config;
  std::vector<std::string> overrides, strategies;
  int ranks = 2;
  std::int64_t steps = 60;
  bool threads = false;
};

// Tells what goes wrong, and nothing else.
class Complaints : public TrainObserver {
 public:
  void on_message(LogLevel level, std::string_view message) override {
    if (level != LogLevel::info) std::cerr << concat("keel: ", message, '\n');
  }
};

// All stages, in the numbers that the configuration computes in.
std::vector<std::string> all_stages(const Config& config) {
  std::string precision = to_string(Strategy{.stage = Strategy::Stage::none, .precision = config.strategy.precision});
  if (config.strategy.precision == Strategy::Precision::automatic) precision = "fp32";
  std::vector<std::string> names;
  for (const char* stage : {"ddp-", "zero1-", "zero2-", "zero3-"}) names.push_back(stage + precision);
  return names;
}

// "6291456 / 6291456"
std::string cell(std::int64_t measured, std::int64_t formula) {
  return fmt::format("{} / {}{}", measured, formula, measured == formula ? "" : " !");
}

std::string precision_of(const std::string& strategy) {
  return to_string(Strategy{.stage = Strategy::Stage::none, .precision = parse_strategy(strategy).precision});
}

// Whether all is as it must be.
bool print_table(const std::vector<ComparedStrategy>& results, const Config& config, int ranks, std::int64_t steps) {
  std::cout << fmt::format("{} steps of {} sequences by {} rank{}\n\n", steps, config.batch.global, ranks,
                           ranks == 1 ? "" : "s");
  constexpr const char* kRow = "{:<11} {:<18} {:>10}  {:>23}  {:>23}  {:>10} {:>8}\n";
  std::cout << fmt::format(kRow, "", "", "", "bytes sent in a step", "bytes of state of a rank", "", "")
            << fmt::format(kRow, "strategy", "weights", "loss", "counted / formula", "counted / formula", "exposed ms",
                           "step ms");
  bool fits = true;
  for (const ComparedStrategy& result : results) {
    const auto reference = std::find_if(results.begin(), results.end(), [&](const ComparedStrategy& other) {
      return precision_of(other.name) == precision_of(result.name);
    });
    const bool equal = reference->fingerprint == result.fingerprint;
    fits = fits && equal && result.fits_formulas();
    std::cout << fmt::format(kRow, result.name, fmt::format("{:016x}{}", result.fingerprint, equal ? "" : " !"),
                             fmt::format("{:.6f}", result.loss), cell(result.sent, result.sent_by_formula),
                             cell(result.kept, result.kept_by_formula), fmt::format("{:.2f}", result.exposed_ms),
                             fmt::format("{:.2f}", result.step_ms));
  }
  std::cout << (fits ? "\nThe weights are equal to the bit, and all bytes are those of the formulas.\n"
                     : "\n! marks weights that are not equal, and counts that are not those of the formula.\n");
  return fits;
}

int run_rank(Communicator& ranks, const Arguments& arguments) {
  Config config;
  together(ranks, [&] { config = load_config(arguments.config, arguments.overrides); });
  const std::vector<std::string> strategies = arguments.strategies.empty() ? all_stages(config) : arguments.strategies;
  Complaints complaints;
  const auto results = compare_strategies(config, strategies, arguments.steps, complaints, ranks);
  bool fits = true;
  together(ranks, [&] {
    if (ranks.rank() == 0) fits = print_table(results, config, ranks.size(), arguments.steps);
  });
  return fits ? 0 : 1;
}

int run(const Arguments& arguments) {
  const auto work = [&](Communicator& ranks) { return run_rank(ranks, arguments); };
  if (arguments.threads || arguments.ranks == 1) return on_ranks(arguments.ranks, work);
  if (find_launched()) return on_ranks(0, work);
  std::vector<std::string> command = {"compare", arguments.config};
  command.insert(command.end(), arguments.overrides.begin(), arguments.overrides.end());
  command.push_back(fmt::format("--steps={}", arguments.steps));
  for (const std::string& name : arguments.strategies) command.push_back("--strategies=" + name);
  return launch_keel(arguments.ranks, std::move(command));
}

}  // namespace

void add_compare(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("compare", "Train under several strategies, and compare them.");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG.yaml", arguments->config, "The configuration.")->required();
  command->add_option("KEY=VALUE", arguments->overrides, "Values that replace those of the file.");
  command->add_option("-N", arguments->ranks, "Ranks.")
      ->transform(without_equals)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("RANKS");
  command->add_option("--strategies", arguments->strategies, "What to compare; all stages without it.")
      ->delimiter(',')
      ->type_name("NAME");
  command->add_option("--steps", arguments->steps, "Steps of each.")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--threads", arguments->threads, "Ranks as threads of one process, without MPI.");
  command->footer(kFooter);
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace keel::cli
