// `keel plan`: what a run will need on so many ranks, before anyone starts it.

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "common_options.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/stack.h"
#include "keel/trainer/step_prediction.h"
#include "machine.h"
#include "program_keys.h"
#include "step_trace.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr const char* kPlanFooter = R"(
Examples:
  keel plan c.yaml -N 64 --strat zero3-bf16
  keel plan c.yaml -N 8                          every stage, in the configuration's precision
  keel plan c.yaml -N 64 sharding.group=8        a group of 8 ranks shares out a whole copy
  keel plan c.yaml --json
  keel plan c.yaml -N 8 --strat zero3-bf16 --trace traces
  keel plan c.yaml --strat zero1-bf16 --predict 8,64 --from comm.json --ranks-per-node 8

The figures are those of rank 0, than which no rank needs more, by the formulas in keel/dist/plan/rank_plan.h; activations
are not part of them. "at once" is what is there for a while, at its peak: what stages 2 and 3 have whole, and in the
processor's memory what passes between a GPU, files and an offloaded optimizer. Where the run's folder holds a run that
came to an end, what it measured stands below what the formulas say of it; what it sent is an average between the first
and the last record of metrics.jsonl, with evaluations and what groups of ranks tell each other, and a record may cut a
step's messages apart.

--trace writes what each rank computes and asks for in a step, for one strategy, into FOLDER/step.<rank>.json: a graph
for simulators, in the terms of MLCommons Chakra (docs/comm.md).

--predict says how long a step will take on more ranks, for one strategy: computing as the run in the run's folder has
measured it, and collectives by the model of `keel comm --predict`, calibrated from the files that `keel comm --json`
wrote (docs/comm.md). "high" and "low" are an interval; beyond 8 times the most ranks in those files the line says
"extrapolated".)";

constexpr int kMostRanks = 1 << 20, kMostTraces = 4096;

struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::string strategy;
  bool json = false;
  std::vector<int> predict;
  std::vector<std::string> from;
  int ranks_per_node = 0;
  std::string trace;
  FilesBeside beside;
};

std::string size_or_dash(std::int64_t bytes) { return bytes == 0 ? "-" : binary_size(static_cast<double>(bytes)); }

// One strategy, and what it needs.
struct Row {
  std::string name;
  RankPlan plan;
  std::optional<RankPlan> each_backward = {};  // where whole gradients wait for the last micro-batch, without that
  // Of an optimizer that transforms matrices: by their owners, and by everyone.
  std::optional<RankPlan> dealt = {}, by_everyone = {};
};

std::vector<Row> plan_rows(Config config, const StackModels& models, int ranks, bool all_stages) {
  using Stage = Strategy::Stage;
  std::vector<Row> rows;
  for (const Stage stage : {Stage::ddp, Stage::zero1, Stage::zero2, Stage::zero3}) {
    if (all_stages) config.strategy.stage = stage;
    rows.push_back({to_string(config.strategy), plan_run(config, models, ranks)});
    const auto with = [&](auto key, auto value) {
      Config other = config;
      other.sharding.*key = value;
      return plan_run(other, models, ranks);
    };
    // A rank that shares with nobody, as in groups of one, has none: all of its gradient is its own.
    const bool keeps_whole = rows.back().plan.memory.whole_gradients > 0 && config.sharding.virtual_ranks == 0;
    if (config.strategy.stage >= Stage::zero2 && keeps_whole && planned_micro_batches(config, ranks) > 1 &&
        config.sharding.accumulation == Accumulation::deferred)
      rows.back().each_backward = with(&ShardingConfig::accumulation, Accumulation::each_backward);
    if (ranks > 1 && transform_matrices(config, models)) {
      const RankPlan dealt = with(&ShardingConfig::matrices, MatrixWork::dealt),
                     everyone = with(&ShardingConfig::matrices, MatrixWork::everyone);
      if (dealt.traffic.matrices != everyone.traffic.matrices || dealt.matrix_operations != everyone.matrix_operations)
        rows.back().dealt = dealt, rows.back().by_everyone = everyone;
    }
    if (!all_stages) break;
  }
  return rows;
}

void print_header() {
  fmt::print("{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "", "parameters", "gradients", "optimizer", "in all",
             "at once", "sent a step");
}

void print_row(const std::string& name, const MemoryPlan& memory, std::string sent) {
  fmt::print("{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", name, size_or_dash(memory.parameter),
             size_or_dash(memory.gradient), size_or_dash(memory.optimizer), size_or_dash(memory.kept()),
             size_or_dash(memory.buckets), sent);
}

void print_copy(const MemoryPlan& memory) {
  if (memory.checkpoint > 0)
    fmt::print("  and {} in the processor's memory, the copy that checkpoint.async writes\n",
               binary_size(static_cast<double>(memory.checkpoint)));
  if (memory.copies > 0)
    fmt::print("  and {} in /dev/shm at most, what checkpoint.memory_every keeps there for a rank and another one\n",
               binary_size(static_cast<double>(memory.copies)));
}

void print_host(const MemoryPlan& memory, const std::string& more = "") {
  if (memory.host == 0 && memory.host_buckets == 0) return;
  fmt::print("  and {} in the processor's memory, with {} at once besides{}\n", size_or_dash(memory.host),
             size_or_dash(memory.host_buckets), more);
}

void print_plan(const RankPlan& plan, const std::string& name) {
  print_row(name, plan.memory, size_or_dash(plan.traffic.sent()));
  if (plan.memory.undelivered > 0)
    fmt::print("  of the gradients {} are what compression delivers later\n",
               binary_size(static_cast<double>(plan.memory.undelivered)));
  if (plan.memory.partial_sums > 0)
    fmt::print("  of the gradients {} are sums over the virtual ranks of a rank\n",
               binary_size(static_cast<double>(plan.memory.partial_sums)));
  print_host(plan.memory,
             concat("; ", binary_size(static_cast<double>(plan.traffic.offload)), " a step to it and back"));
  if (plan.memory.file > 0)
    fmt::print("  and {} in a file; a step reads {} of it and writes {}\n",
               binary_size(static_cast<double>(plan.memory.file)),
               binary_size(static_cast<double>(plan.traffic.file_read)),
               binary_size(static_cast<double>(plan.traffic.file_written)));
  if (plan.traffic.strategy > 0)
    fmt::print("  and {} to other groups of ranks every {}\n", binary_size(static_cast<double>(plan.traffic.strategy)),
               plan.traffic.strategy_steps == 1 ? "step" : concat(plan.traffic.strategy_steps, " steps"));
  print_copy(plan.memory);
}

// Which way to transform matrices is cheaper: by bytes that are sent and operations of the rank.
std::string cheaper_matrices(const RankPlan& dealt, const RankPlan& everyone) {
  const std::int64_t bytes = dealt.traffic.matrices - everyone.traffic.matrices,
                     operations = everyone.matrix_operations - dealt.matrix_operations;
  if (bytes >= 0 && operations <= 0) return "everyone is cheaper";
  if (bytes <= 0 && operations >= 0) return "dealt is cheaper";
  const double worth = std::abs(static_cast<double>(operations) / static_cast<double>(bytes));
  return fmt::format("{} is cheaper where a rank does more than {:.0f} operations while it sends a byte",
                     bytes > 0 ? "everyone" : "dealt", worth);
}

void print_matrices(const RankPlan& dealt, const RankPlan& everyone) {
  fmt::print(
      "  of matrices (sharding.matrices) dealt sends {} and does {:.3g} operations, everyone {} and {:.3g}: {}\n",
      size_or_dash(dealt.traffic.matrices), static_cast<double>(dealt.matrix_operations),
      size_or_dash(everyone.traffic.matrices), static_cast<double>(everyone.matrix_operations),
      cheaper_matrices(dealt, everyone));
}

MemoryPlan memory_of(const MeasuredRun& run) {
  return {.parameter = run.parameter,
          .gradient = run.gradient,
          .optimizer = run.optimizer,
          .buckets = run.buckets,
          .host = run.host,
          .host_buckets = run.host_buckets,
          .checkpoint = run.checkpoint};
}

Json to_json(const MemoryPlan& memory) {
  return {{"parameter_bytes", memory.parameter},      {"gradient_bytes", memory.gradient},
          {"optimizer_bytes", memory.optimizer},      {"kept_bytes", memory.kept()},
          {"bucket_bytes", memory.buckets},           {"host_bytes", memory.host},
          {"host_bucket_bytes", memory.host_buckets}, {"checkpoint_bytes", memory.checkpoint}};
}

Json to_json(const RankPlan& plan) {
  Json json = to_json(plan.memory);
  json["memory_copies_bytes"] = plan.memory.copies;
  json["partial_sum_bytes"] = plan.memory.partial_sums;
  json["undelivered_bytes"] = plan.memory.undelivered;
  json["gathered_bytes"] = plan.memory.gathered;
  json["whole_gradient_bytes"] = plan.memory.whole_gradients;
  json["file_bytes"] = plan.memory.file;
  json["file_read_bytes"] = plan.traffic.file_read;
  json["file_written_bytes"] = plan.traffic.file_written;
  json["sent_bytes"] = plan.traffic.sent();
  json["gather_bytes"] = plan.traffic.gathers;
  json["reduction_bytes"] = plan.traffic.reductions;
  json["matrix_bytes"] = plan.traffic.matrices;
  json["matrix_operations"] = plan.matrix_operations;
  json["control_bytes"] = plan.traffic.control;
  json["offload_bytes"] = plan.traffic.offload;
  json["strategy_bytes"] = plan.traffic.strategy;
  json["strategy_steps"] = plan.traffic.strategy_steps;
  return json;
}

Json to_json(const StepPrediction& each) {
  return {{"ranks", each.ranks},
          {"compute_ms", each.compute_ms},
          {"communication_ms", each.communication_ms},
          {"exposed_ms", each.exposed_ms},
          {"step_ms", each.step_ms},
          {"low_ms", each.low_ms},
          {"high_ms", each.high_ms},
          {"extrapolated", each.is_extrapolated}};
}

// A run that ended, beside its own plan.
struct Comparison {
  MeasuredRun run;
  RankPlan plan;
};

void print_text(const Config& config, const ModelSize& model, int ranks, bool chose_precision,
                const std::vector<Row>& rows, const std::optional<Comparison>& measured) {
  fmt::print("{} parameters in {} units; the largest, {}, has {}\n", grouped(model.parameters), model.units,
             model.units == 0 ? "none" : model.largest_name, grouped(model.largest_unit));
  if (model.trained < model.parameters)
    fmt::print("{} of them are trained, the others frozen\n", grouped(model.trained));
  const std::int64_t micro_batches = planned_micro_batches(config, ranks) * config.sharding.of_each(ranks);
  fmt::print("{} rank{}; a step of {} rows is {} micro-batch{} on each\n", ranks, ranks == 1 ? "" : "s",
             config.batch.global, micro_batches, micro_batches == 1 ? "" : "es");
  if (config.sharding.virtual_ranks > 0)
    fmt::print("bits are those of {} virtual ranks, of which each computes {}; gradients travel in fp32\n",
               config.sharding.virtual_ranks, config.sharding.of_each(ranks));
  if (find_optimizer(config.optimizer.type).requirements.closure)
    fmt::print("{} evaluates the loss several times in a step; what is sent is that of one evaluation\n",
               config.optimizer.type);
  if (config.sharding.tunes() && ranks > 1)
    fmt::print("sharding.bucket=auto: the first steps try sizes; memory is that of the largest\n");
  if (chose_precision) fmt::print("auto is taken for bf16 here; a run measures which is faster\n");
  fmt::print("\n");
  print_header();
  for (const Row& row : rows) {
    print_plan(row.plan, row.name);
    if (row.dealt && row.by_everyone) print_matrices(*row.dealt, *row.by_everyone);
    if (!row.each_backward) continue;
    fmt::print(
        "  whole gradients, {}, until the last micro-batch; sharding.accumulation=each_backward has {} at once\n"
        "  and sends {}\n",
        binary_size(static_cast<double>(row.plan.memory.whole_gradients)),
        size_or_dash(row.each_backward->memory.buckets), size_or_dash(row.each_backward->traffic.sent()));
  }
  if (!measured) return;
  fmt::print("\n{} was trained as {} on {} rank{}:\n\n", config.run, to_string(measured->run.config.strategy),
             measured->run.ranks, measured->run.ranks == 1 ? "" : "s");
  print_header();
  print_plan(measured->plan, "formulas");
  print_row("measured", memory_of(measured->run), measured->run.sent ? size_or_dash(*measured->run.sent) : "-");
  print_host(memory_of(measured->run));
  print_copy(memory_of(measured->run));
}

void print_json(const Config& config, const ModelSize& model, int ranks, const std::vector<Row>& rows,
                const std::optional<Comparison>& measured, const std::vector<StepPrediction>& predictions) {
  Json json = {{"ranks", ranks},
               {"micro_batches", planned_micro_batches(config, ranks)},
               {"parameters", model.parameters},
               {"trained", model.trained},
               {"units", model.units},
               {"largest_unit", {{"name", model.largest_name}, {"parameters", model.largest_unit}}}};
  for (const Row& row : rows) json["plans"][row.name] = to_json(row.plan);
  if (measured) {
    Json run = to_json(memory_of(measured->run));
    if (measured->run.sent) run["sent_bytes"] = *measured->run.sent;
    json["run"] = {{"folder", config.run},
                   {"strategy", to_string(measured->run.config.strategy)},
                   {"ranks", measured->run.ranks},
                   {"plan", to_json(measured->plan)},
                   {"measured", run}};
  }
  for (const StepPrediction& each : predictions) json["predictions"].push_back(to_json(each));
  std::cout << json.dump(2) << '\n';
}

std::vector<StepPrediction> predict(const PlanArguments& arguments, const Config& config, const StackModels& models,
                                    const std::optional<Comparison>& measured) {
  if (arguments.predict.empty()) return {};
  KEEL_CHECK(!arguments.from.empty(),
             "--predict needs what was measured of collectives: --from FILE, which `keel comm "
             "--json FILE` wrote");
  KEEL_CHECK(measured.has_value(), "--predict needs a run that came to an end, for the time of computing, and '",
             config.run, "' holds none; train some steps, or name its folder with run=FOLDER");
  std::vector<lab::Report> reports;
  for (const std::string& name : arguments.from) reports.push_back(lab::load_report(name));
  std::vector<StepPrediction> predictions;
  for (const int ranks : arguments.predict)
    predictions.push_back(predict_step(config, measured->run, reports, models, ranks, arguments.ranks_per_node));
  return predictions;
}

void print_predictions(const std::vector<StepPrediction>& predictions, const std::string& strategy) {
  if (predictions.empty()) return;
  fmt::print("\na step as {}, predicted, in milliseconds:\n\n", strategy);
  fmt::print("{:>7}{:>12}{:>16}{:>12}{:>12}{:>12}{:>12}\n", "ranks", "computing", "communication", "exposed", "step",
             "low", "high");
  for (const StepPrediction& each : predictions)
    fmt::print("{:>7}{:>12.2f}{:>16.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{}\n", each.ranks, each.compute_ms,
               each.communication_ms, each.exposed_ms, each.step_ms, each.low_ms, each.high_ms,
               each.is_extrapolated ? "  extrapolated" : "");
}

void write_traces(const std::string& folder, const Config& config, int ranks, TaskBase& task) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw Error(concat("cannot make the folder '", folder, "': ", code.message()), ErrorKind::io);
  for (int rank = 0; rank < ranks; ++rank)
    write_text_file(concat(folder, "/step.", rank, ".json"),
                    to_chakra(trace_run(config, task, ranks, rank), ranks, rank).dump(1) + "\n");
}

// With the run that the folder holds, if any. One that cannot be planned is left out, and why is told, unless it is
// needed.
std::optional<Comparison> compare_with_run(const std::string& folder, bool is_needed) {
  try {
    auto found = read_measured_run(folder, program_keys());
    if (!found) return std::nullopt;
    assume_precision(found->config);
    // A run on a processor has offloaded nothing, whatever its strategy is called.
    const RankPlan plan = plan_run(found->config, *make_task(found->config), found->ranks, !found->on_device);
    return Comparison{std::move(*found), plan};
  } catch (const Error& error) {
    if (is_needed) throw;
    const std::string why = error.what();
    std::cerr << concat("keel: warning: not compared with the run in '", printable(folder),
                        "': ", printable(why.substr(0, why.find('\n'))), '\n');
    return std::nullopt;
  }
}

void run(PlanArguments arguments) {
  const int ranks = arguments.ranks;
  KEEL_CHECK(arguments.trace.empty() || ranks <= kMostTraces, "--trace writes a file for each rank, of ", kMostTraces,
             " at most; -N asks for ", ranks);
  if (!arguments.strategy.empty()) arguments.overrides.push_back("strategy=" + arguments.strategy);
  arguments.beside.ranks = ranks;
  Config config = read_configuration(arguments.config, arguments.overrides, true, arguments.beside);
  measure_by_data(config);
  const bool chose_precision = assume_precision(config);
  const std::unique_ptr<TaskBase> task = make_task(config);
  const StackModels models(*task);
  const ModelSize size = measure_model(models);
  const std::vector<Row> rows = plan_rows(config, models, ranks, arguments.strategy.empty());
  const std::optional<Comparison> measured = compare_with_run(config.run, !arguments.predict.empty());
  const std::vector<StepPrediction> predictions = predict(arguments, config, models, measured);
  if (!arguments.trace.empty()) write_traces(arguments.trace, config, ranks, *task);
  if (arguments.json) return print_json(config, size, ranks, rows, measured, predictions);
  print_text(config, size, ranks, chose_precision, rows, measured);
  print_predictions(predictions, to_string(config.strategy));
  if (!arguments.trace.empty())
    fmt::print("\na step of each rank as {} is in {}/step.<rank>.json\n", to_string(config.strategy), arguments.trace);
}

}  // namespace

Command plan_command() {
  const auto arguments = std::make_shared<PlanArguments>();
  return {
      .name = "plan",
      .help = "Say what a run will need: memory of a rank, and bytes it sends.",
      .positionals = {configuration(&arguments->config), overrides(&arguments->overrides)},
      .options = {{"-N,--ranks", "RANKS", {&arguments->ranks, 1, kMostRanks}, "How many ranks train."},
                  {"--strat,--strategy", "NAME", &arguments->strategy,
                   "One strategy, as in zero2-bf16, instead of each stage."},
                  {"--predict",
                   "RANKS",
                   {&arguments->predict, 1, kMostRanks},
                   "How long a step takes on so many ranks; needs --from and a run."},
                  {"--from", "FILE", &arguments->from, "What `keel comm --json` wrote, to calibrate the model with."},
                  {"--ranks-per-node",
                   "N",
                   {&arguments->ranks_per_node, 1, 1024},
                   "Of the predicted ranks; all share one without it."},
                  {"--trace", "FOLDER", &arguments->trace, "A folder for the graph of each rank's step."},
                  deepspeed_file(&arguments->beside),
                  accelerate_file(&arguments->beside),
                  {"--json", "", &arguments->json, "Print JSON, with sizes in bytes."}},
      .footer = kPlanFooter,
      .run = [arguments](const Call&) {
        run(*arguments);
        return 0;
      }};
}

}  // namespace keel::cli
