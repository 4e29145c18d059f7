// `keel show`: the memory and the time of one step of a run, as a page to look at.

#include <fmt/core.h>

#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "commands.h"
#include "common_options.h"
#include "keel/runtime/file.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/run_plan.h"
#include "page.h"
#include "program_keys.h"
#include "step_record.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr const char* kShowFooter = R"(
Examples:
  keel train c.yaml run=runs/seen steps=3 log.trace=1      records the second step
  keel show runs/seen                                      writes runs/seen/step.html
  keel show runs/seen --json

The page shows memory over the step, by purpose and by unit, with what was there at the peak and since when; what each
rank computed, sent and waited for; and the bytes of each unit. What `keel plan` says stands beside it. It is one file,
which needs no network. log.trace records all ranks on one clock, profile.steps each rank on its own. On a GPU times are
those at which the processor asked for work.)";

struct ShowArguments {
  std::string run, out;
  std::int64_t step = 0;
  bool json = false;
};

std::string milliseconds(std::int64_t microseconds) {
  return fmt::format("{:.2f} ms", static_cast<double>(microseconds) / 1000);
}

void print_peak(const RecordedRank& rank, const StepPeak& peak, std::int64_t begin) {
  constexpr std::size_t kListed = 8;
  fmt::print("rank {}: {} bytes at the peak, after {}\n", rank.rank, grouped(peak.bytes),
             milliseconds(peak.time - begin));
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < peak.alive.size(); ++i) {
    const AliveGroup& group = peak.alive[i];
    if (i < kListed) fmt::print("  {:>14}  {:<12} {}\n", grouped(group.bytes), group.purpose, group.since);
    else rest += group.bytes;
  }
  if (rest != 0) fmt::print("  {:>14}  in {} groups more\n", grouped(rest), peak.alive.size() - kListed);
}

Json to_json(const RecordedRank& rank, const StepPeak& peak, const StepSent& sent) {
  Json alive = Json::array();
  for (const AliveGroup& group : peak.alive)
    alive.push_back(
        {{"purpose", group.purpose}, {"since", group.since}, {"bytes", group.bytes}, {"blocks", group.blocks}});
  return {{"rank", rank.rank},
          {"peak_bytes", peak.bytes},
          {"peak_us", peak.time},
          {"alive", alive},
          {"sent_bytes_of_units", sent.of_units},
          {"sent_bytes", sent.all}};
}

// [["all_gather h.0", bytes], ...] of a rank, as spans are called; null where only the task's code knows the turns of
// its models.
Json planned_bytes(const Config& config, TaskBase& task, int ranks, int rank) {
  if (StackModels(task).all().size() > 1 || find_optimizer(config.optimizer.type).requirements.closure) return {};
  Json bytes = Json::array();
  for (const TraceNode& node : trace_run(config, task, ranks, rank)) {
    if (node.kind != TraceNode::Kind::collective) continue;
    // "gather the rest", "gather gradient h.0"
    std::string unit = node.name;
    for (const std::string_view what : {"gather gradient", "gather", "reduce", "matrices"})
      if (unit.starts_with(what)) {
        unit.erase(0, what.size());
        break;
      }
    bytes.push_back(Json::array({concat(name_of(node.collective.kind), unit), node.sent}));
  }
  return bytes;
}

Json plan_json(const MemoryPlan& memory) {
  return {{"parameter", memory.parameter},
          {"gradient", memory.gradient},
          {"optimizer", memory.optimizer},
          {"buckets", memory.buckets}};
}

void run(const ShowArguments& arguments) {
  const StepRecord record = read_step(arguments.run, arguments.step);
  const int ranks = record.began;

  Json told = Json::array();
  for (const RecordedRank& rank : record.ranks)
    told.push_back(to_json(rank, peak_of(record, rank), sent_in(record, rank)));
  if (arguments.json) {
    std::cout << Json{{"step", record.step}, {"began", record.began}, {"ranks", told}}.dump(2) << '\n';
    return;
  }
  const std::string file = RunFolder(arguments.run).config();
  check_is_known(*program_keys(), read_text_file(file), file);  // the page has a plan, which takes both
  Config config = load_config(program_keys(), file);
  assume_precision(config);
  const auto task = make_task(config);
  Json page = to_json(record), planned = Json::array();
  for (const RecordedRank& rank : record.ranks) planned.push_back(planned_bytes(config, *task, ranks, rank.rank));
  page["planned"] = planned;
  page["run"] = arguments.run;
  page["summary"] = fmt::format("{} on {} rank{}, {}; {}", to_string(config.strategy), ranks, ranks == 1 ? "" : "s",
                                config.optimizer.type, milliseconds(record.end - record.begin));
  if (std::ssize(record.ranks) < ranks)
    page["summary"] = fmt::format("{}; {} of them recorded it, and the plan is that of all with which the run began",
                                  page.at("summary").string(), record.ranks.size());
  page["plan"] = plan_json(plan_run(config, *task, ranks, !ran_on_device(arguments.run)).memory);
  const std::string out = arguments.out.empty() ? arguments.run + "/step.html" : arguments.out;
  write_text_file(out, fill_page(kStepPage, page));
  fmt::print("step {} of {}: {}\n", record.step, arguments.run, page.at("summary").string());
  for (const RecordedRank& rank : record.ranks) print_peak(rank, peak_of(record, rank), record.begin);
  fmt::print("{}\n", out);
}

}  // namespace

Command show_command() {
  const auto arguments = std::make_shared<ShowArguments>();
  return {.name = "show",
          .help = "Show the memory and the time of a recorded step as a page.",
          .positionals = {{"RUN", "", &arguments->run, "The folder of a run that has recorded a step.", kRequired}},
          .options = {{"--step", "STEP", Value(&arguments->step, 1, std::numeric_limits<std::int64_t>::max()),
                       "Which step; without it the first that was recorded."},
                      {"--out", "FILE.html", &arguments->out, "Where the page goes; without it RUN/step.html."},
                      {"--json", "", &arguments->json, "Print peaks and bytes as JSON, and write no page."}},
          .footer = kShowFooter,
          .run = [arguments](const Call&) {
            run(*arguments);
            return 0;
          }};
}

}  // namespace keel::cli
