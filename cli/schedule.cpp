// `keel schedule`: the learning rate of every step of a run, before anyone starts it.

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "common_options.h"
#include "curve.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/trainer/config.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/progress.h"

namespace keel::cli {
namespace {

constexpr const char* kScheduleFooter = R"(
Examples:
  keel schedule c.yaml
  keel schedule c.yaml scheduler.type=OneCycleLR         another one for the same run; its momentum is drawn, too
  keel schedule c.yaml 'scheduler={type: wsd, warmup: 0.1, decay: 0.2}' --svg rate.svg
  keel schedule c.yaml --steps 200 --json                the first 200 rates as numbers

A rate belongs to the step that follows so many taken steps; steps that are skipped are not taken. The data of the
configuration is not opened. docs/schedules.md lists all schedules.)";

constexpr std::int64_t kMostSteps = 1 << 20;

struct ScheduleArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::int64_t steps = 0;
  std::string svg;
  bool ascii = false;
  bool json = false;
};

struct Curves {
  Curve rate{"learning rate", {}, 0};
  Curve momentum{"momentum", {}, 1};  // empty where the schedule leaves it alone; its axis begins at the lowest one
};

Curves evaluate(const LearningRate& rates, std::int64_t steps) {
  Curves curves;
  for (std::int64_t done = 0; done < steps; ++done) {
    curves.rate.values.push_back(rates.rate(done));
    if (const auto momentum = rates.momentum(done)) curves.momentum.values.push_back(*momentum);
  }
  // A sequence may have parts that cycle the momentum and parts that do not. A curve with gaps would mislead.
  if (curves.momentum.values.size() != curves.rate.values.size()) curves.momentum.values.clear();
  return curves;
}

// "from 1e-05 to 1e-06; the highest is 0.001 after 100 steps".
std::string ends_and_peak(const std::vector<double>& values) {
  const auto peak = std::max_element(values.begin(), values.end()) - values.begin();
  return fmt::format("from {:.6g} to {:.6g}; the highest is {:.6g} after {} step{}", values.front(), values.back(),
                     values[static_cast<std::size_t>(peak)], peak, peak == 1 ? "" : "s");
}

void run(const ScheduleArguments& arguments) {
  Config config = read_configuration(arguments.config, arguments.overrides);
  measure_by_data(config);
  const LearningRate rates(config);
  const std::int64_t steps = arguments.steps > 0 ? arguments.steps : config.steps;
  KEEL_CHECK(steps <= kMostSteps, "the run has ", steps, " steps, and ", kMostSteps,
             " can be drawn; --steps N draws the first N of them");
  const Curves curves = evaluate(rates, steps);
  const bool has_momentum = !curves.momentum.values.empty();
  const std::string title =
      fmt::format("{}, {} steps, optimizer.lr {}", rates.schedule().kind().name, steps, config.optimizer.lr);
  if (!arguments.svg.empty()) {
    std::vector<Curve> panels = {curves.rate};
    if (has_momentum) panels.push_back(curves.momentum);
    AtomicFile file(arguments.svg);
    file.write(curves_svg(title, panels));
    file.commit();
  }
  if (arguments.json) {
    Json json = {{"type", rates.schedule().kind().name},
                 {"optimizer_lr", config.optimizer.lr},
                 {"steps", steps},
                 {"rates", curves.rate.values}};
    if (has_momentum) json["momentum"] = curves.momentum.values;
    std::cout << json.dump() << '\n';
    return;
  }
  if (config.time_limit > 0)
    std::cout << fmt::format(
        "where time_limit ({:g} s) ends the run before its {} steps, the curve ends with the time\n\n",
        config.time_limit, config.steps);
  const CurveStyle style = arguments.ascii || !locale_is_utf8() ? CurveStyle::ascii : CurveStyle::braille;
  std::cout << title << "\n\n" << draw_curve(curves.rate, style);
  std::cout << "\nlearning rate: " << ends_and_peak(curves.rate.values) << '\n';
  if (has_momentum) {
    std::cout << '\n' << draw_curve(curves.momentum, style, {.columns = 72, .rows = 7});
    std::cout << "\nmomentum: " << ends_and_peak(curves.momentum.values) << '\n';
  }
}

}  // namespace

Command schedule_command() {
  const auto arguments = std::make_shared<ScheduleArguments>();
  return {
      .name = "schedule",
      .help = "Draw the learning rate of every step of a run.",
      .positionals = {configuration(&arguments->config), overrides(&arguments->overrides)},
      .options = {{"--steps", "N", {&arguments->steps, 1, kMostSteps}, "Draw the first N steps instead of all."},
                  {"--svg", "FILE", &arguments->svg, "Write the drawing to a file, too."},
                  {"--ascii", "", &arguments->ascii, "Draw with plain characters, as where the locale is not UTF-8."},
                  {"--json", "", &arguments->json, "Print the numbers instead of a drawing."}},
      .footer = kScheduleFooter,
      .run = [arguments](const Call&) {
        run(*arguments);
        return 0;
      }};
}

}  // namespace keel::cli
