// `keel compare`: the same training in several ways, side by side.

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "common_options.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/lab/sizes.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/compare.h"
#include "launch.h"
#include "launched.h"
#include "network.h"
#include "ranks.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr const char* kCompareFooter = R"(
Examples:
  keel compare c.yaml -N 2
  keel compare c.yaml -N 4 --strategies zero1-bf16,zero3-bf16 --steps 100
  keel compare c.yaml -N 4 --algorithms ordered,ring,tree       one strategy, the configuration's
  keel compare c.yaml -N 2 --buckets 1M,4M,16M,64M --tuned tuned.yaml
  keel compare c.yaml -N 2 --compression none,bf16,int8,topk:0.01,powersgd:4
  keel compare c.yaml -N 2 --delay 200 --bandwidth 100M         as if on a slower network
  keel compare c.yaml -N 3 --threads                            ranks as threads of one process, without MPI

Every combination of strategies, algorithms, buckets and compressions trains the same steps from the same weights, without evaluation
and files, so many times as --repeats says, in turns. "weights" begins a fingerprint of all weights in the end: equal ones
mean equal bits. Bytes are those of rank 0 as counted; where the formulas of `keel plan` say otherwise, what they say
stands behind them. "exposed" is the time of a step
in which rank 0 waited for others. Times are of steps after the first: "step" and "exposed" are means over the repeats of
their medians, "p95" of the times that 95 of 100 steps stay below. "+-" is a 95 % confidence interval of "step": with n
repeats t s / sqrt(n), s the standard deviation of their medians, t from Student's distribution.

Of compression, "codec" is the part of a step that turns gradients into fewer bytes and back, and "net gain" how much
shorter the step is than the same one without, codec included: "no net gain" where it is not, or the two confidence
intervals explain the difference. "pays below" is the bandwidth of a rank's link below which the bytes that are saved
take longer than the codec (docs/comm.md).

The exit code is 1 where runs that do the same sums in the same numbers end in different weights, where a run differs from
its own repetition, or where a count of bytes is not that of its formula.)";

struct CompareArguments {
  std::string config;
  std::vector<std::string> overrides;
  CompareAxes axes;
  int ranks = 2;
  CompareOptions options;
  NetworkArguments network;
  std::string tuned;  // file for the fastest configuration
  bool threads = false;
  int columns = 0;
  FilesBeside beside;
};

// Tells what goes wrong, and nothing else.
class Complaints : public TrainObserver {
 public:
  void on_message(LogLevel level, std::string_view message) override {
    if (level != LogLevel::info) std::cerr << concat("keel: ", printable_lines(message), '\n');
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

// "6291456", or "6291456 / 6291444 !" where that is not what was counted.
std::string cell(std::int64_t measured, std::int64_t formula) {
  return measured == formula ? fmt::format("{}", measured) : fmt::format("{} / {} !", measured, formula);
}

std::string milliseconds(double value) { return fmt::format("{:.2f}", value); }

// What compression costs and brings, beside the same training without.
std::string gains_text(const std::vector<ComparedRun>& runs, int width) {
  std::vector<TableColumn> columns = {
      {"", "compression", 0, true}, {"bytes", "saved"}, {"codec", "ms"}, {"", "net gain"}, {"pays", "below"}};
  for (const ComparedRun& run : runs) {
    if (!run.compresses) continue;
    const auto plain = std::find_if(runs.begin(), runs.end(), [&](const ComparedRun& other) {
      return !other.compresses && other.base == run.base;
    });
    const NetGain gain = net_gain(*plain, run);
    std::size_t at = 0;
    for (const std::string& text :
         {run.name, fmt::format("{}", plain->sent - run.sent), milliseconds(run.codec_ms),
          gain.is_gain ? fmt::format("{:.1f} %", 100 * gain.fraction) : std::string("no net gain"),
          gain.pays_below > 0 ? fmt::format("{:.3g} GB/s", 1e-9 * gain.pays_below) : std::string("never")})
      columns[at++].cells.push_back(text);
  }
  return table_text(columns, width);
}

// The first run of those that must end in the same weights.
const ComparedRun& reference_of(const ComparedRun& run, const std::vector<ComparedRun>& runs) {
  return *std::find_if(runs.begin(), runs.end(),
                       [&](const ComparedRun& other) { return other.decisive == run.decisive; });
}
bool has_right_weights(const ComparedRun& run, const std::vector<ComparedRun>& runs) {
  return reference_of(run, runs).fingerprint == run.fingerprint && run.repeats;
}

std::string runs_text(const std::vector<ComparedRun>& runs, const CompareOptions& options, int width) {
  std::vector<TableColumn> columns = {
      {"", "strategy", 0, true}, {"", "weights", 0, true}, {"", "loss", 3}, {"bytes sent", "in a step"},
      {"bytes of", "state"},     {"exposed", "ms", 1},     {"step", "ms"},  {"+-", "ms", 2},
      {"p95", "ms", 4}};
  for (const ComparedRun& run : runs) {
    std::size_t at = 0;
    for (const std::string& text :
         {run.name, fmt::format("{:08x}{}", run.fingerprint >> 32, has_right_weights(run, runs) ? "" : " !"),
          fmt::format("{:.6f}", run.loss), cell(run.sent, run.sent_by_formula), cell(run.kept, run.kept_by_formula),
          milliseconds(run.exposed_ms), milliseconds(run.step_ms),
          options.repeats > 1 ? milliseconds(run.confidence_ms) : std::string("-"), milliseconds(run.p95_ms)})
      columns[at++].cells.push_back(text);
  }
  return table_text(columns, width);
}

// What each run does that lets its weights differ from the first one's; empty: nothing, of all runs.
std::string differences_text(const std::vector<ComparedRun>& runs, int width) {
  const std::vector<std::string>& first = runs.front().decisive;
  std::vector<TableColumn> columns = {{"", "strategy", 0, true}, {"", "does", 0, true}};
  for (const ComparedRun& run : runs) {
    std::string name = run.name;
    for (const std::string& each : run.decisive) {
      if (std::find(first.begin(), first.end(), each) != first.end()) continue;
      columns[0].cells.push_back(std::exchange(name, ""));
      columns[1].cells.push_back(each);
    }
  }
  return columns[0].cells.empty() ? "" : table_text(columns, width);
}

// Whether all is as it must be.
bool print_tables(const std::vector<ComparedRun>& runs, const Config& config, int ranks, const CompareOptions& options,
                  int width) {
  const std::string network = describe(options.link);
  std::cout << fmt::format("{} steps of {} rows by {} rank{}, {} time{}{}{}\n\n", options.steps, config.batch.global,
                           ranks, ranks == 1 ? "" : "s", options.repeats, options.repeats == 1 ? "" : "s",
                           network.empty() ? "" : "; ", network);
  std::cout << runs_text(runs, options, width);
  const auto any = [&](const auto& is_so) { return std::any_of(runs.begin(), runs.end(), is_so); };
  if (any([](const ComparedRun& run) { return run.compresses && run.base != run.name; }))
    std::cout << '\n' << gains_text(runs, width);
  const bool fits = !any([&](const ComparedRun& run) { return !has_right_weights(run, runs) || !run.fits_formulas(); });
  const std::string differences = differences_text(runs, width);
  if (!differences.empty())
    std::cout << "\nWhy weights may differ from those of " << runs.front().name << ":\n" << differences;
  std::cout << (!fits ? "\n! marks weights that are not equal, and counts that are not the formula's.\n"
                : differences.empty()
                    ? "\nThe weights are equal to the bit, and all bytes are those of the formulas.\n"
                    : "\nThe weights of runs that do the same are equal to the bit, and all bytes are\n"
                      "those of the formulas.\n");
  return fits;
}

// The configuration of the run with the shortest steps, to train with.
void write_fastest(const std::vector<ComparedRun>& runs, const std::vector<Variant>& variants,
                   const std::string& file) {
  const auto fastest = std::min_element(
      runs.begin(), runs.end(), [](const ComparedRun& a, const ComparedRun& b) { return a.step_ms < b.step_ms; });
  const auto variant =
      std::find_if(variants.begin(), variants.end(), [&](const Variant& each) { return each.name == fastest->name; });
  write_text_file(file, to_yaml(variant->config));
  std::cout << fmt::format("The fastest is {}; {} has it: keel train {}\n", fastest->name, file, file);
}

// All stages, where nothing says what to compare.
std::vector<Variant> wanted_variants(Config config, CompareAxes axes) {
  if (axes.strategies.empty() && axes.algorithms.empty() && axes.buckets.empty() && axes.compressions.empty())
    axes.strategies = all_stages(config);
  if (config.strategy.precision == Strategy::Precision::automatic)
    config.strategy.precision = Strategy::Precision::fp32;
  return variants_of(config, axes);
}

int run_rank(Communicator& ranks, const CompareArguments& arguments) {
  Config config;
  std::vector<Variant> variants;
  CompareOptions options = arguments.options;
  together(ranks, [&] {
    FilesBeside beside = arguments.beside;
    beside.ranks = ranks.size();
    config = read_configuration(arguments.config, arguments.overrides, ranks.rank() == 0, beside);
    variants = wanted_variants(config, arguments.axes);
    options.link = link_of(arguments.network);
  });
  Complaints complaints;
  const auto runs = compare(variants, options, complaints, ranks);
  bool fits = true;
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    fits = print_tables(runs, config, ranks.size(), options,
                        arguments.columns > 0 ? arguments.columns : columns_of_output());
    if (!arguments.tuned.empty()) write_fastest(runs, variants, arguments.tuned);
  });
  return fits ? 0 : 1;
}

int run(const Call& call, const CompareArguments& arguments) {
  const auto work = [&](Communicator& ranks) { return run_rank(ranks, arguments); };
  if (arguments.threads || arguments.ranks == 1) return on_ranks(arguments.ranks, work);
  if (find_launched()) return on_ranks(0, work);
  return launch_keel(arguments.ranks, with_columns(words_for_ranks("compare", call), arguments.columns));
}

}  // namespace

Command compare_command() {
  const auto arguments = std::make_shared<CompareArguments>();
  CompareAxes& axes = arguments->axes;
  CompareOptions& options = arguments->options;
  return {.name = "compare",
          .help = "Train in several ways, and compare them.",
          .positionals = {configuration(&arguments->config), overrides(&arguments->overrides)},
          .options = {{"-N", "RANKS", {&arguments->ranks, 1, 1024}, "Ranks."},
                      {"--strategies", "NAME", &axes.strategies,
                       "What to compare; all stages where nothing else says what."},
                      {"--algorithms", "NAME", &axes.algorithms,
                       "Algorithms of collectives, by their names in `keel comm --help`."},
                      {"--buckets", "SIZE", &axes.buckets, "Sizes of sharding.bucket, such as 1M,4M."},
                      {"--compression", "NAME", &axes.compressions,
                       "Ways of gradient_compression, with a number where they take one; none is always among them."},
                      {"--steps", "N", {&options.steps, 2, std::int64_t{1} << 40}, "Steps of each training."},
                      {"--repeats", "N", {&options.repeats, 1, 1000}, "Trainings of each."},
                      delay_option(&arguments->network),
                      bandwidth_option(&arguments->network),
                      {"--tuned", "C.yaml", &arguments->tuned,
                       "Write the configuration with the shortest steps to this file."},
                      deepspeed_file(&arguments->beside),
                      accelerate_file(&arguments->beside),
                      ranks_as_threads(&arguments->threads),
                      columns_option(&arguments->columns)},
          .footer = kCompareFooter,
          .run = [arguments](const Call& call) { return run(call, *arguments); }};
}

}  // namespace keel::cli
