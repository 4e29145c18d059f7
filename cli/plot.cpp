// `keel plot`: what runs have written into metrics.jsonl, as curves.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "common_options.h"
#include "curve.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"

namespace keel::cli {
namespace {

constexpr const char* kPlotFooter = R"(
Examples:
  keel plot runs/mine
  keel plot runs/mine runs/other                  on the same axes
  keel plot runs/mine runs/other --out both.svg   as a picture, and nothing in the terminal

A run is its folder, or a file of such records. Curves are those of the records there are: log.every says how many steps
lie between two, and a run that goes on may be drawn at any time.)";

constexpr double kLowest = std::numeric_limits<double>::infinity();  // the axis begins at the lowest value

// What is drawn, each where a run has it.
struct Drawn {
  std::string_view metric, name;
  double low;
};
constexpr Drawn kDrawn[] = {{"loss", "loss", kLowest},
                            {"validation_loss", "validation loss", kLowest},
                            {"lr", "learning rate", 0},
                            {"grad_norm", "gradient norm", 0},
                            {"tokens_per_s", "tokens per second", 0}};

struct PlotArguments {
  Words runs;
  std::string out;
  bool ascii = false;
  int columns = 0;
};

std::vector<Json> records_of(const std::string& run) {
  std::error_code ignored;
  const std::string file = std::filesystem::is_directory(run, ignored) ? RunFolder(run).metrics() : run;
  KEEL_CHECK(std::filesystem::exists(file, ignored), "'", run, "' is not the folder of a run: there is no '", file,
             "'");
  std::vector<Json> records = read_metrics(file);
  KEEL_CHECK(!records.empty(), "'", file, "' holds no record yet");
  return records;
}

// A metric over the steps of a run; without values where the run has none. What is not finite is left out.
Curve curve_of(const Drawn& drawn, const std::vector<Json>& records, std::size_t look) {
  Curve curve{.name = std::string(drawn.name), .values = {}, .low = drawn.low, .places = {}, .look = look};
  for (const Json& record : records) {
    const Json* value = record.find(drawn.metric);
    if (value == nullptr || !value->is_number()) continue;
    curve.values.push_back(value->number());
    curve.places.push_back(static_cast<double>(record.at("step").integer()));
  }
  return curve;
}

std::vector<Panel> panels_of(const Words& runs) {
  std::vector<std::vector<Json>> records;
  for (const std::string& run : runs) records.push_back(records_of(run));
  std::vector<Panel> panels;
  for (const Drawn& drawn : kDrawn) {
    Panel panel{std::string(drawn.name), {}, runs.size() > 1};
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (Curve curve = curve_of(drawn, records[i], i); !curve.values.empty()) panel.curves.push_back(std::move(curve));
    if (!panel.curves.empty()) panels.push_back(std::move(panel));
  }
  KEEL_CHECK(!panels.empty(), "'", runs.front(), "' holds no numbers that are drawn");
  return panels;
}

// "runs/mine: loss from 5.57 to 1.78 in 3000 steps".
std::string summary(const Panel& panel, const Words& runs) {
  std::string text;
  for (const Curve& curve : panel.curves)
    text += fmt::format("{}: {} from {:.4f} to {:.4f}, step {:.0f}\n", runs[curve.look], panel.name,
                        curve.values.front(), curve.values.back(), curve.places.back());
  return text;
}

void run(const PlotArguments& arguments) {
  const Words& runs = arguments.runs;
  KEEL_CHECK(runs.size() <= kLooks, runs.size(), " runs are too many to tell apart; ", kLooks, " can be drawn at once");
  const std::vector<Panel> panels = panels_of(runs);
  if (!arguments.out.empty()) {
    const bool several = runs.size() > 1;
    write_text_file(arguments.out, panels_svg(several ? concat(runs.size(), " runs") : runs.front(), panels,
                                              several ? runs : Words()));
    std::cout << arguments.out << '\n';
    return;
  }
  const CurveStyle style = arguments.ascii || !locale_is_utf8() ? CurveStyle::ascii : CurveStyle::braille;
  const int width = arguments.columns > 0 ? arguments.columns : columns_of_output();
  const CurveSize size{.columns = std::max(width - kCurveLabel - 1, 8), .rows = 9};
  if (runs.size() > 1) std::cout << draw_legend(runs, style) << '\n';
  for (const Panel& panel : panels) std::cout << draw_panel(panel, style, size) << '\n';
  std::cout << summary(panels.front(), runs);
}

}  // namespace

Command plot_command() {
  const auto arguments = std::make_shared<PlotArguments>();
  return {
      .name = "plot",
      .help = "Draw loss, learning rate, gradient norm and speed of runs.",
      .positionals = {{"RUN", "", Value::every_word(&arguments->runs), "Folders of runs.", kRequired}},
      .options = {{"--out", "FILE.svg", &arguments->out, "Write a picture instead."},
                  columns_option(&arguments->columns),
                  {"--ascii", "", &arguments->ascii, "Draw with plain characters, as where the locale is not UTF-8."}},
      .footer = kPlotFooter,
      .run = [arguments](const Call&) {
        run(*arguments);
        return 0;
      }};
}

}  // namespace keel::cli
