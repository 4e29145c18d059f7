// `keel compare`: the same training in several ways, side by side.

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "common_options.h"
#include "compare_curves.h"
#include "compare_tables.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/lab/sizes.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/compare.h"
#include "launch.h"
#include "launched.h"
#include "network.h"
#include "ranks.h"

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
  keel compare c.yaml -N 4 sharding.group=2 --outer-delay 50000 --outer-bandwidth 10M    two sites of two ranks
  keel compare c.yaml -N 3 --threads                            ranks as threads of one process, without MPI
  keel compare c.yaml -N 4 --variant "diloco: outer.type=diloco outer.every=16" --seeds 1,2,3 --steps 400 \
      --until-loss 2.5 --curves diloco                          loss against bytes and seconds

Every combination of strategies, algorithms, buckets and compressions trains the same steps from the same weights, without evaluation
and files, so many times as --repeats says, in turns. "weights" begins a fingerprint of all weights in the end: equal ones
mean equal bits. Bytes are those of rank 0 as counted; where the formulas of `keel plan` say otherwise, what they say
stands behind them. What groups of ranks tell each other every so many steps (outer.type) is part of them, on average
over whole such windows. "exposed" is the time of a step in which rank 0 waited for others. Times are of steps after the
first: "step" and "exposed" are means over the repeats of their medians, "p95" of the times that 95 of 100 steps stay
below. "+-" is a 95 % confidence interval of "step": with n repeats t s / sqrt(n), s the standard deviation of their
medians, t from Student's distribution.

Of compression, "codec" is the part of a step that turns gradients into fewer bytes and back, and "net gain" how much
shorter the step is than the same one without, codec included: "no net gain" where it is not, or the two confidence
intervals explain the difference. "pays below" is the bandwidth of a rank's link below which the bytes that are saved
take longer than the codec (docs/comm.md).

Where the mathematics differs, what counts is the loss against what it costs. --variant, --seeds, --until-loss and
--curves each ask for that comparison: every variant, "plain" among them, trains once with each seed, with the evaluations
that the configuration asks for. "loss" is the mean of the last 10 steps, "validation" that of the last evaluation, each a
mean over seeds; "+-" behind it is the standard deviation of seeds, and so is the band in the pictures. Bytes are those
that rank 0 has sent, seconds those of rank 0, both from the first step and without evaluations. Behind "below X" stand
the steps, bytes and seconds until the mean loss of 10 steps is first below X (docs/comm.md).

The exit code is 1 where runs that do the same sums in the same numbers end in different weights, where a run differs from
its own repetition, where a count of bytes is not that of its formula, or where a run took no step: all of its steps had
gradients that are not finite, as with a loss scale that needs more steps to fall (fp16: a smaller loss_scale.initial).)";

struct CompareArguments {
  std::string config;
  std::vector<std::string> overrides;
  CompareAxes axes;
  int ranks = 2;
  CompareOptions options;
  NetworkArguments network;
  std::string tuned;  // file for the fastest configuration
  CurveArguments curves;
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

// The configuration of the run with the shortest steps, to train with; steps that none takes are no choice.
void write_fastest(const std::vector<ComparedRun>& runs, const std::vector<Variant>& variants,
                   const std::string& file) {
  const auto rank_of = [](const ComparedRun& run) { return std::pair(!run.has_learnt(), run.step_ms); };
  const auto fastest = std::ranges::min_element(runs, {}, rank_of);
  if (!fastest->has_learnt()) {
    std::cout << concat(file, " is not written: no run took a step\n");
    return;
  }
  const auto variant =
      std::find_if(variants.begin(), variants.end(), [&](const Variant& each) { return each.name == fastest->name; });
  write_text_file(file, to_yaml(variant->config));
  std::cout << fmt::format("The fastest is {}; {} has it: keel train {}\n", fastest->name, file, file);
}

// In numbers that the configuration, or else fp32, says.
std::vector<Variant> variants_in_numbers(Config config, const CompareAxes& axes) {
  if (config.strategy.precision == Strategy::Precision::automatic)
    config.strategy.precision = Strategy::Precision::fp32;
  return variants_of(config, axes);
}

// All stages, where nothing says what to compare.
std::vector<Variant> wanted_variants(const Config& config, CompareAxes axes) {
  if (axes.strategies.empty() && axes.algorithms.empty() && axes.buckets.empty() && axes.compressions.empty())
    axes.strategies = all_stages(config);
  return variants_in_numbers(config, axes);
}

// With the changes, as they would be typed behind those of the call.
Config configuration_of(const CompareArguments& arguments, const Communicator& ranks, const Words& changes = {}) {
  FilesBeside beside = arguments.beside;
  beside.ranks = ranks.size();
  Words overrides = arguments.overrides;
  overrides.insert(overrides.end(), changes.begin(), changes.end());
  return read_configuration(arguments.config, overrides, ranks.rank() == 0, beside);
}

int columns_of(const CompareArguments& arguments) {
  return arguments.columns > 0 ? arguments.columns : columns_of_output();
}

bool wants_curves(const CompareArguments& arguments) {
  return !arguments.axes.changes.empty() || arguments.curves.are_asked_for();
}

// Each variant with each seed, seed by seed.
std::vector<CurveWish> wanted_curves(const CompareArguments& arguments, const Communicator& ranks) {
  KEEL_CHECK(arguments.tuned.empty(), "--tuned is of comparisons of steps, and not of losses over seeds");
  std::vector<int> seeds = arguments.curves.seeds;
  std::sort(seeds.begin(), seeds.end());
  const auto twice = std::adjacent_find(seeds.begin(), seeds.end());
  KEEL_CHECK(twice == seeds.end(), "--seeds has ", *twice, " twice");
  std::vector<CurveWish> wishes;
  const auto add = [&](const Words& changes) {
    const Config config = configuration_of(arguments, ranks, changes);
    for (Variant& each : variants_in_numbers(config, arguments.axes))
      wishes.push_back({each.name, each.config.seed, std::move(each.config)});
  };
  if (seeds.empty()) add({});
  for (const int seed : seeds) add({concat("seed=", seed)});
  if (!arguments.curves.folder.empty()) {
    const std::size_t variants = wishes.size() / std::max<std::size_t>(seeds.size(), 1);
    KEEL_CHECK(variants <= kLooks, variants, " variants are too many to tell apart in a picture; ", kLooks,
               " can be drawn at once");
    if (ranks.rank() == 0) make_curves_folder(arguments.curves.folder);
  }
  return wishes;
}

int compare_losses(Communicator& ranks, const CompareArguments& arguments) {
  std::vector<CurveWish> wishes;
  CurveFile file{.ranks = ranks.size()};
  together(ranks, [&] {
    wishes = wanted_curves(arguments, ranks);
    file.network = network_of(arguments.network, configuration_of(arguments, ranks).sharding.group);
  });
  Complaints complaints;
  file.curves = train_curves(wishes, arguments.options.steps, file.network, complaints, ranks);
  bool have_learnt = true;
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    const std::vector<MeanCurve> means = mean_curves(file.curves);
    const std::string title = curves_title(file, wishes.front().config.batch.global);
    std::cout << title << "\n\n" << curves_text(means, arguments.curves.until_loss, columns_of(arguments));
    std::string skipped;
    for (const LossCurve& curve : file.curves) {
      const bool has_seed = arguments.curves.seeds.size() > 1;
      skipped += skipped_text(concat(curve.variant, has_seed ? concat(" (seed ", curve.seed, ")") : ""), curve.skipped,
                              std::ssize(curve.points));
      have_learnt &= curve.skipped.none_taken.empty();
    }
    if (!skipped.empty()) std::cout << '\n' << skipped;
    if (!arguments.curves.folder.empty())
      std::cout << '\n' << write_curves(file, means, title, arguments.curves.folder);
  });
  return have_learnt ? 0 : 1;
}

int compare_steps(Communicator& ranks, const CompareArguments& arguments) {
  Config config;
  std::vector<Variant> variants;
  CompareOptions options = arguments.options;
  together(ranks, [&] {
    config = configuration_of(arguments, ranks);
    variants = wanted_variants(config, arguments.axes);
    options.network = network_of(arguments.network, config.sharding.group);
  });
  Complaints complaints;
  const auto runs = compare(variants, options, complaints, ranks);
  bool fits = true;
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    fits = print_tables(runs, config, ranks.size(), options, columns_of(arguments));
    if (!arguments.tuned.empty()) write_fastest(runs, variants, arguments.tuned);
  });
  return fits ? 0 : 1;
}

int run_rank(Communicator& ranks, const CompareArguments& arguments) {
  if (!wants_curves(arguments)) return compare_steps(ranks, arguments);
  return compare_losses(ranks, arguments);
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
  Command command = {
      .name = "compare",
      .help = "Train in several ways, and compare them.",
      .positionals = {configuration(&arguments->config), overrides(&arguments->overrides)},
      .options =
          {{"-N", "RANKS", {&arguments->ranks, 1, 1024}, "Ranks."},
           {"--strategies", "NAME", &axes.strategies, "What to compare; all stages where nothing else says what."},
           {"--algorithms", "NAME", &axes.algorithms,
            "Algorithms of collectives, by their names in `keel comm --help`."},
           {"--buckets", "SIZE", &axes.buckets, "Sizes of sharding.bucket, such as 1M,4M."},
           {"--compression", "NAME", &axes.compressions,
            "Ways of gradient_compression, with a number where they take one; none is always among them."},
           {"--variant", "NAME: KEY=VALUE ...", Value::every_word(&axes.changes),
            "What the configuration has otherwise in this variant; plain is always among them. May be given "
            "again."},
           {"--seeds",
            "N",
            {&arguments->curves.seeds, 0, std::numeric_limits<int>::max()},
            "Train each with these values of seed, to see how far losses spread."},
           {"--until-loss", "LOSS", &arguments->curves.until_loss, "What it takes until the loss is below this."},
           {"--curves", "FOLDER", &arguments->curves.folder,
            "Write losses with their bytes and seconds into this folder: curves.json and pictures."},
           {"--steps", "N", {&options.steps, 2, std::int64_t{1} << 40}, "Steps of each training."},
           {"--repeats", "N", {&options.repeats, 1, 1000}, "Trainings of each."},
           {"--tuned", "C.yaml", &arguments->tuned, "Write the configuration with the shortest steps to this file."},
           deepspeed_file(&arguments->beside),
           accelerate_file(&arguments->beside),
           ranks_as_threads(&arguments->threads),
           columns_option(&arguments->columns)},
      .footer = kCompareFooter,
      .run = [arguments](const Call& call) { return run(call, *arguments); }};
  const auto before = std::find_if(command.options.begin(), command.options.end(),
                                   [](const Option& option) { return option.names == "--tuned"; });
  const std::vector<Option> network = network_options(&arguments->network);
  command.options.insert(before, network.begin(), network.end());
  return command;
}

}  // namespace keel::cli
