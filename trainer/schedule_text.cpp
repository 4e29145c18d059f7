// docs/schedules.md, made from the table of schedules.

#include <fmt/format.h>

#include "keel/trainer/schema.h"

namespace keel {
namespace {

constexpr std::string_view kSchedulesIntroduction = R"(# Learning-rate schedules

The section `scheduler` of a configuration names a schedule and its parameters; docs/config.md lists their values and
limits, and `keel schedule c.yaml` draws the curve without training. A schedule is a pure function from the number of
steps taken to a factor on `optimizer.lr`: nothing of it is saved, a resumed run asks for the step it is at, and a step
that is skipped because a gradient was not finite does not count.

- **Rates.** `min_lr`, `base_lr` and `max_lr` are learning rates, as in the programs that the schedules come from. They are
  divided by `optimizer.lr` once, so that a parameter group with a rate of its own keeps its ratio to the others. A
  `max_lr` that is not given is `optimizer.lr`, whatever it is elsewhere.
- **Steps.** The schedule counts optimizer steps; with `interval: epoch` it counts epochs of `steps_per_epoch` steps, and so
  do its parameters. `frequency: 10` moves it on after every tenth. `auto` for a number of all steps is the whole run.
- **Warm-up.** A whole number is a count of steps. A number with a decimal point is a ratio of all steps, rounded up:
  `warmup: 0.1` is a tenth, `warmup: 1` one step. Under the names `warmup_ratio` and `warmup_proportion` every number is a
  ratio.
- **The plain words.** `cosine`, `linear` and `constant` are keel's own: the first step of the warm-up already learns, and
  `min_lr` is reached after `steps` steps. Other programs mean something else by these words, so that their schedules
  have longer names here: `linear_with_warmup`, `cosine_with_warmup` and `constant_with_warmup` begin at 0. The `cosine` of
  transformers-framework makes one whole wave: `cosine_with_warmup` with `cycles: 1`.
- **DeepSpeed's warm-up** begins to count one step later than others do, and WarmupCosineLR's first rate is 0; a run has the
  rates that DeepSpeed would give it. The momentum of its OneCycle starts at the upper end, as it goes on.
- **The end.** OneCycleLR and some of transformers-framework's have no rate after their last step: a run with more steps
  than the schedule is refused.
- **Sequences and products.** Parts are written as a list. A part of a sequence counts from its own start, and its `auto`
  and ratios are of the steps until the next part begins:

```yaml
scheduler:
  type: sequence
  milestones: [100]
  schedules:
    - {type: LinearLR, start_factor: 0.1, total_iters: 100}
    - {type: CosineAnnealingLR, min_lr: 1e-5}
```

- **Another length.** A resumed run with other `steps` follows the schedule of the new length, and says so.
- **Time.** Where `time_limit` ends a run before its steps, the curve ends with the time. After n steps, taken in s seconds,
  a run of L seconds is expected to take N = n + ceil(n (L - s) / s) steps, or `steps` where those are fewer, and the next
  rate is that of a schedule of N steps. So a warm-up of 50 steps stays one, and `auto` and ratios are of N. The first
  rank's clock decides for all; it is in checkpoints, so a resumed run goes on where the curve was. Where the schedule does
  not fit into N steps, that of `steps` holds. Such rates depend on the machine's speed: a run that is to give the same bits
  each time has no `time_limit`. `session_limit` ends a session alone, and changes no rate.

- **Momentum.** CyclicLR, OneCycleLR and OneCycle lower the momentum while the rate rises: that of an optimizer with
  `momentum`, and the first of `betas`. An optimizer that has neither asks for `cycle_momentum: false`. A part of a
  sequence that cycles no momentum leaves it to the optimizer.
- **Layers.** `layer_decay` of polynomial_decay_layerwise multiplies the rate of each layer by a power of its distance from
  the output.

In the formulas t is the number of steps taken, N `steps`, w `warmup`, p = (t - w) / (N - w); rates are divided by
`optimizer.lr`.

)";

// A vertical bar would end a table's cell.
std::string words(std::string_view list) {
  std::string text;
  for (const std::string_view word : split_choices(list)) text += fmt::format("{}`{}`", text.empty() ? "" : ", ", word);
  return text;
}

std::string parameters_of(const ScheduleKind& kind) {
  std::string text;
  for (const ScheduleUse& use : kind.parameters) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", schedule_parameter(use.parameter).name);
    if (!use.standard.empty()) text += fmt::format(" ({})", use.standard);
  }
  return text;
}

}  // namespace

std::string schedule_reference() {
  std::string text(kSchedulesIntroduction);
  text += "| type | also | factor on optimizer.lr | parameters (default) | from |\n|---|---|---|---|---|\n";
  for (const ScheduleKind& kind : schedule_kinds())
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", kind.name, words(kind.aliases), kind.formula,
                        parameters_of(kind), kind.source);
  text +=
      "\nParameters have these other names, from the programs that the schedules come from:\n\n"
      "| key | also |\n|---|---|\n";
  for (std::size_t i = 0; i < kScheduleParameters; ++i) {
    const ScheduleParameterRow& row = schedule_parameter(static_cast<ScheduleParameter>(i));
    std::string others = words(row.aliases);
    if (!row.ratio_aliases.empty()) others += fmt::format("; for a ratio {}", words(row.ratio_aliases));
    if (!others.empty()) text += fmt::format("| `{}` | {} |\n", row.name, others);
  }
  return text +
         "| `interval` | `scheduler_interval`; `step_scheduler_per_epoch: true` |\n| `frequency` | "
         "`scheduler_frequency` |\n"
         "\nDeepSpeed's `params: {...}` around the parameters is read as well. This page is written by `keel docs "
         "schedules`.\n";
}

}  // namespace keel
