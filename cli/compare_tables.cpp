#include "compare_tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>

#include "network.h"
#include "table.h"

namespace keel::cli {
namespace {

// "6291456", or "6291456 / 6291444 !" where that is not what was counted.
std::string cell(std::int64_t measured, std::int64_t formula) {
  return measured == formula ? fmt::format("{}", measured) : fmt::format("{} / {} !", measured, formula);
}

std::string milliseconds(double value) { return fmt::format("{:.2f}", value); }

// What compression costs and brings, beside the same training without; empty: nothing, where no steps were taken.
std::string gains_text(const std::vector<ComparedRun>& runs, int width) {
  std::vector<TableColumn> columns = {
      {"", "compression", 0, true}, {"bytes", "saved"}, {"codec", "ms"}, {"", "net gain"}, {"pays", "below"}};
  for (const ComparedRun& run : runs) {
    if (!run.compresses) continue;
    const auto plain = std::find_if(runs.begin(), runs.end(), [&](const ComparedRun& other) {
      return !other.compresses && other.base == run.base;
    });
    if (!run.has_learnt() || !plain->has_learnt()) continue;  // a step that is not taken is shorter
    const NetGain gain = net_gain(*plain, run);
    std::size_t at = 0;
    for (const std::string& text :
         {run.name, fmt::format("{}", plain->sent - run.sent), milliseconds(run.codec_ms),
          gain.is_gain ? fmt::format("{:.1f} %", 100 * gain.fraction) : std::string("no net gain"),
          gain.pays_below > 0 ? fmt::format("{:.3g} GB/s", 1e-9 * gain.pays_below) : std::string("never")})
      columns[at++].cells.push_back(text);
  }
  return columns[0].cells.empty() ? "" : table_text(columns, width);
}

// The first run of those that must end in the same weights.
const ComparedRun& reference_of(const ComparedRun& run, const std::vector<ComparedRun>& runs) {
  return *std::find_if(runs.begin(), runs.end(),
                       [&](const ComparedRun& other) { return other.decisive == run.decisive; });
}
bool has_right_weights(const ComparedRun& run, const std::vector<ComparedRun>& runs) {
  return reference_of(run, runs).fingerprint == run.fingerprint && run.repeats;
}

std::string weights_text(const ComparedRun& run, const std::vector<ComparedRun>& runs) {
  if (!run.has_learnt()) return "-";
  return fmt::format("{:08x}{}", run.fingerprint >> 32, has_right_weights(run, runs) ? "" : " !");
}

std::string runs_text(const std::vector<ComparedRun>& runs, const CompareOptions& options, int width) {
  std::vector<TableColumn> columns = {
      {"", "strategy", 0, true}, {"", "weights", 0, true}, {"", "loss", 3}, {"bytes sent", "in a step"},
      {"bytes of", "state"},     {"exposed", "ms", 1},     {"step", "ms"},  {"+-", "ms", 2},
      {"p95", "ms", 4}};
  for (const ComparedRun& run : runs) {
    std::size_t at = 0;
    for (const std::string& text :
         {run.name, weights_text(run, runs), fmt::format("{:.6f}", run.loss), cell(run.sent, run.sent_by_formula),
          cell(run.kept, run.kept_by_formula), milliseconds(run.exposed_ms), milliseconds(run.step_ms),
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

// The last line, where every count is as it must be.
std::string verdict(const std::vector<ComparedRun>& runs, bool have_differences) {
  const auto learnt = std::ranges::count_if(runs, &ComparedRun::has_learnt);
  if (learnt == 0) return "\nNo run took a step: there are no weights to compare.\n";
  if (learnt == 1 && runs.size() > 1)
    return "\nOne run alone took steps: there is nothing to compare its weights with.\n";
  const bool all = learnt == std::ssize(runs);
  if (have_differences)
    return concat("\nThe weights of runs that do the same", all ? "" : " and took steps",
                  " are equal to the bit, and all bytes are\nthose of the formulas.\n");
  return concat("\nThe weights", all ? "" : " of runs that took steps",
                " are equal to the bit, and all bytes are those of the formulas.\n");
}

}  // namespace

std::string skipped_text(std::string_view name, const SkippedOfTraining& skipped, std::int64_t steps) {
  if (!skipped.none_taken.empty()) return concat(name, ": ", skipped.none_taken, '\n');
  if (skipped.count == 0) return "";
  return concat(skipped.by_all ? "" : "a group of ranks of ", name, " skipped ", skipped.count, " of ", steps,
                " steps\n");
}

bool print_tables(const std::vector<ComparedRun>& runs, const Config& config, int ranks, const CompareOptions& options,
                  int width) {
  const std::string network = describe(options.network);
  std::cout << fmt::format("{} steps of {} rows by {} rank{}, {} time{}{}{}\n\n", options.steps, config.batch.global,
                           ranks, ranks == 1 ? "" : "s", options.repeats, options.repeats == 1 ? "" : "s",
                           network.empty() ? "" : "; ", network);
  std::cout << runs_text(runs, options, width);
  std::string skipped;
  for (const ComparedRun& run : runs) skipped += skipped_text(run.name, run.skipped, options.steps);
  if (!skipped.empty()) std::cout << '\n' << skipped;
  const auto longest = std::max_element(runs.begin(), runs.end(),
                                        [](const ComparedRun& a, const ComparedRun& b) { return a.window < b.window; });
  if (longest->window > 0)
    std::cout << fmt::format(
        "\nBytes leave out what groups of ranks tell each other every {0} steps: --steps {1} counts it.\n",
        longest->window, longest->window + 1);
  const auto any = [&](const auto& is_so) { return std::any_of(runs.begin(), runs.end(), is_so); };
  const bool shows_gains = any([](const ComparedRun& run) { return run.compresses && run.base != run.name; });
  if (const std::string gains = shows_gains ? gains_text(runs, width) : ""; !gains.empty()) std::cout << '\n' << gains;
  const bool fits = !any([&](const ComparedRun& run) { return !has_right_weights(run, runs) || !run.fits_formulas(); });
  const std::string differences = differences_text(runs, width);
  if (!differences.empty())
    std::cout << "\nWhy weights may differ from those of " << runs.front().name << ":\n" << differences;
  std::cout << (fits ? verdict(runs, !differences.empty())
                     : "\n! marks weights that are not equal, and counts that are not the formula's.\n");
  return fits && std::ranges::all_of(runs, &ComparedRun::has_learnt);
}

}  // namespace keel::cli
