// The keys of keel's own callbacks: best checkpoints, early stopping, averages of weights.

#include <algorithm>
#include <cctype>

#include "keel/runtime/error.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

constexpr Condition kInAnyRun = {};
constexpr Condition kStopsEarly = {"early_stopping.patience", "0", true};
constexpr Condition kNamesBest = {"checkpoint.best", "none", true};
constexpr Condition kHasEma = {"ema.decay", "0", true};
constexpr Condition kHasSwa = {"swa.start", "0", true};
constexpr Range kNotBelowNone = {.low = 0};
constexpr Range kNotBelowOne = {.low = 1};

constexpr std::string_view kModes = "auto|min|max";
constexpr std::string_view kModeHelp =
    "Whether smaller or larger values are better; auto: as the name says, such as loss or accuracy.";

// The name of a value in records of evaluations.
template <auto access>
FieldPtr metric_field() {
  return parsed_field([](const Config& config) { return access(const_cast<Config&>(config)); },
                      [](Config& config, std::string_view text) {
                        const bool is_fine = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
                          return std::isalnum(c) != 0 || c == '_' || c == '/';
                        });
                        KEEL_CHECK(is_fine, "expects the name of a value, such as validation_loss, got '", text, "'");
                        access(config) = text;
                      },
                      "a name, such as validation_loss");
}

template <auto access>
FieldPtr mode_field() {
  return choice_field([](const Config& config) { return static_cast<int>(access(const_cast<Config&>(config))); },
                      [](Config& config, int index) { access(config) = static_cast<MetricMode>(index); }, kModes);
}

}  // namespace

std::vector<SchemaRow> callback_rows() {
  const auto at_best = [](Config& c) -> std::string& { return c.checkpoint.best; };
  const auto at_best_mode = [](Config& c) -> MetricMode& { return c.checkpoint.best_mode; };
  const auto at_metric = [](Config& c) -> std::string& { return c.early_stopping.metric; };
  const auto at_mode = [](Config& c) -> MetricMode& { return c.early_stopping.mode; };
  std::vector<SchemaRow> rows = {
      {"checkpoint.best", metric_field<at_best>(), "none", kAny, kInAnyRun,
       "A value of evaluations, such as validation_loss: each evaluation that is better than all before makes a "
       "checkpoint, which stays, and which checkpoints/best names; none: no such one.",
       "best_metric|monitor|metric_for_best_model"},
      {"checkpoint.best_mode", mode_field<at_best_mode>(), "auto", kAny, kNamesBest, kModeHelp,
       "greater_is_better|monitor_direction"},
      {"early_stopping.patience", member(+[](Config& c) -> std::int64_t& { return c.early_stopping.patience; }), "0",
       kNotBelowNone, kInAnyRun,
       "The run ends after so many evaluations in a row that are no better than the best one before; 0: it does not."},
      {"early_stopping.metric", metric_field<at_metric>(), "validation_loss", kAny, kStopsEarly,
       "The value of evaluations that is meant, by its name in metrics.jsonl.", "monitor"},
      {"early_stopping.min_delta", member(+[](Config& c) -> double& { return c.early_stopping.min_delta; }), "0",
       kNotBelowNone, kStopsEarly, "A gain of less does not count.", "threshold"},
      {"early_stopping.mode", mode_field<at_mode>(), "auto", kAny, kStopsEarly, kModeHelp, "monitor_direction"},
      {"ema.decay", member(+[](Config& c) -> double& { return c.ema.decay; }), "0", kFraction, kInAnyRun,
       "After each step, an average of the weights in fp32 keeps this share of itself, and takes the rest from the "
       "weights: 0.999, for instance. It is kept in checkpoints; `keel get --ema` writes it. 0: no average.",
       "ema_decay|model_ema_decay"},
      {"ema.warmup", member(+[](Config& c) -> bool& { return c.ema.warmup; }), "true", kAny, kHasEma,
       "The share is at most (1 + t) / (10 + t) at update t, from 0, so that the first weights are soon forgotten."},
      {"ema.evaluate", member(+[](Config& c) -> bool& { return c.ema.evaluates; }), "true", kAny, kHasEma,
       "Evaluations are of the average."},
      {"swa.start", member(+[](Config& c) -> std::int64_t& { return c.swa.start; }), "0", kNotBelowNone, kInAnyRun,
       "The step after which weights first join their mean (stochastic weight averaging), which is kept in fp32 and in "
       "checkpoints; `keel get --swa` writes it. 0: no mean.",
       "swa_epoch_start"},
      {"swa.every", member(+[](Config& c) -> std::int64_t& { return c.swa.every; }), "1", kNotBelowOne, kHasSwa,
       "Steps between two weights that join it."},
      {"swa.rate_factor",
       member(+[](Config& c) -> double& { return c.swa.rate_factor; }),
       "1",
       {.low = 0, .low_open = true},
       kHasSwa,
       "On the learning rates of the steps after swa.start.",
       "swa_lr"},
      {"swa.evaluate", member(+[](Config& c) -> bool& { return c.swa.evaluates; }), "false", kAny, kHasSwa,
       "Evaluations after swa.start are of the mean."},
  };
  // The first six say what is told and kept; averages, too, leave the trained weights alone, but for the rates.
  for (SchemaRow& row : rows)
    row.on_resume = row.key == "swa.rate_factor" || row.key == "swa.start" ? OnResume::warns : OnResume::ignores;
  return rows;
}

}  // namespace keel
