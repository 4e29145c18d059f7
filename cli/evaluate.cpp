// `keel evaluate`: the metrics of a trained model.

#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "common_options.h"
#include "keel/dist/comm/agreement.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/evaluate_run.h"
#include "table.h"
#include "trained_options.h"

namespace keel::cli {
namespace {

constexpr const char* kEvaluateFooter = R"(
Examples:
  keel evaluate runs/mine                             the newest checkpoint that is whole, on all validation sets
  keel evaluate runs/mine --on others --json o.json   one set, and a file for programs
  keel evaluate runs/mine --step 500 eval.batches=0   all batches, where training takes some
  keel evaluate runs/mine --best --ema                the average of weights, of the best checkpoint
  keel evaluate runs/mine data.path=other.txt         on other data
  keel launch -N 4 --strat zero3 evaluate runs/mine   a model that no rank has memory for alone

Numbers are those that training told of the same step, to the bit, at any number of ranks and in every stage, but
for runs with sharding.weight_code by other ranks, and with outer.type between outer steps (docs/comm.md). Metrics have
the names of metrics.jsonl.)";

struct EvaluateArguments {
  TrainedArguments trained;
  std::string on, json;
};

void print(const EvaluatedRun& run) {
  std::vector<TableColumn> columns = {{"", "set", 0, true}, {"", "metric", 0, true}, {"", "value", 0}};
  for (const EvaluatedSet& set : run.sets)
    for (const NamedNumber& each : set.values) {
      columns[0].cells.push_back(set.name);
      columns[1].cells.push_back(each.name);
      columns[2].cells.push_back(fmt::format("{:.6g}", each.value));
    }
  std::cout << printable(run.checkpoint) << ": step " << run.step << " of the task " << run.task << ", " << run.strategy
            << (run.ranks == 1 ? "" : concat(" by ", run.ranks, " ranks")) << '\n'
            << table_text(columns, columns_of_output());
}

// Training may have evaluated other numbers than those that are loaded.
std::string average_note(const Config& config, const TrainedArguments& arguments) {
  if (arguments.ema || arguments.swa) return "";
  const bool is_ema = config.ema.decay > 0 && config.ema.evaluates,
             is_swa = !config.swa.start.is_none() && config.swa.evaluates;
  if (!is_ema && !is_swa) return "";
  return concat("training evaluated an average of weights (", is_ema ? "ema" : "swa",
                ".evaluate); these are metrics of the weights themselves, and --", is_ema ? "ema" : "swa",
                " of the average");
}

int evaluate_on(Communicator& ranks, const EvaluateArguments& arguments) {
  std::optional<AtomicFile> file;
  TrainedModel trained(arguments.trained.source(), ranks, tell_on_console());
  together(ranks, [&] {
    if (ranks.rank() == 0 && !arguments.json.empty()) file.emplace(arguments.json);
  });
  const EvaluatedRun run = evaluate_run(trained, arguments.on);
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    if (file) {
      file->write(run.json().dump(2) + '\n');
      file->commit();
    }
    print(run);
    if (const std::string note = average_note(trained.config(), arguments.trained); !note.empty())
      tell_on_console()(LogLevel::info, note);
  });
  return 0;
}

}  // namespace

Command evaluate_command() {
  const auto arguments = std::make_shared<EvaluateArguments>();
  std::vector<Option> options = {
      {"--on", "SET", &arguments->on, "One validation set; else all of the task."},
      {"--json", "FILE", &arguments->json, "Write the numbers, too, as they are."},
      step_option(arguments->trained),
  };
  for (Option& each : average_options(arguments->trained)) options.push_back(std::move(each));
  for (Option& each : sharing_options(arguments->trained)) options.push_back(std::move(each));
  return {.name = "evaluate",
          .help = "Evaluate a trained model on its validation sets.",
          .positionals = {trained_run(arguments->trained), overrides(&arguments->trained.changes)},
          .options = std::move(options),
          .footer = kEvaluateFooter,
          .run = [arguments](const Call& call) {
            return on_ranks_of("evaluate", call, arguments->trained,
                               [&](Communicator& ranks) { return evaluate_on(ranks, *arguments); });
          }};
}

}  // namespace keel::cli
