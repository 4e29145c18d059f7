#include "keel/tasks/text_source_keys.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::string_view kSourceType = "data.type", kMixtureType = "mixture";

const KeyParts& sources() {
  static const KeyParts kept = {"a source",
                                {{.key = "path", .type = KeyType::path, .help = "As data.path."},
                                 {.key = "weight",
                                  .type = KeyType::number,
                                  .standard = "1",
                                  .help = "Its share of the rows is its part of the sum of all weights.",
                                  .low = 0,
                                  .low_open = true}}};
  return kept;
}

const KeyParts& stage_keys() {
  static const KeyParts kept = {
      "a stage",
      {{.key = "until",
        .type = KeyType::number,
        .standard = "0",
        .help = "Its last step; below 1: the part of the run's steps after which it ends. 0: the last stage, which has "
                "no end.",
        .low = 0},
       {.key = "weights",
        .type = KeyType::numbers,
        .help = "Of the files of data.mixture, in their order; a file of weight 0 has no rows in the stage.",
        .low = 0}}};
  return kept;
}

// Empty: nothing.
std::string complaint_about_stages(const std::vector<Settings>& stages, std::size_t sources) {
  double before = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::vector<double>& weights = stages[i].numbers("weights");
    const double until = stages[i].number("until");
    const std::string shown = concat("stage ", i + 1);
    if (weights.size() != sources)
      return concat(shown, " has ", weights.size(), " weights, and data.mixture ", sources, " files");
    if (std::ranges::all_of(weights, [](double weight) { return weight == 0; }))
      return concat(shown, " reads no file; give one a weight above 0");
    if (i + 1 == stages.size())
      return until == 0 ? "" : "the last stage has no end; leave its until out, or add one behind it";
    if (until == 0) return concat(shown, " has no until, and others come behind it; the last alone has no end");
    if (until >= 1 && until != std::floor(until)) return concat(shown, ": until is a whole step, or a part below 1");
    if (i > 0 && (before < 1) != (until < 1))
      return concat(shown, ": all stages end at steps, or all at parts of the run");
    if (until <= before) return concat(shown, " ends at ", until, ", and the one before at ", before);
    before = until;
  }
  return "";
}

}  // namespace

std::vector<KeyRow> text_source_keys() {
  using enum KeyType;
  return {
      {.key = "data.path",
       .type = path,
       .help =
           "The file, relative to the folder keel is started in; of tokens also a folder of shards, or a pattern such "
           "as shards/train_*.bin.",
       .when_key = kSourceType,
       .when_values = "text|tokens",
       .known_as = "file|text",
       .role = KeyRole::data_file},
      {.key = "data.mixture",
       .type = parts,
       .help = "Files with the shares that they have of every step's rows, to less than one row of any beginning: "
               "texts, or "
               "files of tokens, all of one vocabulary. Each gives its windows or documents once in every round "
               "through it.",
       .when_key = kSourceType,
       .when_values = kMixtureType,
       .parts = &sources()},
      {.key = "data.stages",
       .type = parts,
       .standard = "[]",
       .help = "A curriculum: the shares of the files by stages of the run, in place of their weights, as in [{until: "
               "1000, weights: [1, 0]}, {weights: [1, 3]}]. []: the weights hold all the time.",
       .when_key = kSourceType,
       .when_values = kMixtureType,
       .known_as = "curriculum",
       .parts = &stage_keys()}};
}

std::vector<KeyRow> text_validation_keys(const KeyCondition& documents) {
  using enum KeyType;
  constexpr std::string_view kSplit = "text|tokens|mixture";
  std::vector<KeyRow> rows = {
      {.key = "data.validation",
       .type = number,
       .standard = "0.1",
       .help = "Fraction at the end of each file, or of its documents, that is never trained on; 0: no evaluation.",
       .low = 0,
       .high = 0.5,
       .when_key = kSourceType,
       .when_values = kSplit,
       .known_as = "validation_fraction|val_split",
       .role = KeyRole::validation_fraction}};
  for (const KeyRow& each : validation_keys({kSourceType, kSplit}, documents)) rows.push_back(each);
  rows.push_back(last_rows_key("join", documents));
  return rows;
}

std::vector<SettingsComplaint> complain_of_text_sources(const Settings& settings, bool has_documents) {
  const bool is_mixture = settings.text(kSourceType) == kMixtureType;
  std::vector<SettingsComplaint> complaints = complain_of_validation(settings, has_documents);
  if (has_documents && is_mixture && last_rows(settings) != LastRows::join)
    complaints.push_back({{"data.last", kSourceType},
                          "the files of a mixture have rounds of their own, and no epoch that all of them end: every "
                          "step has all rows; leave it out"});
  if (is_mixture && !settings.parts("data.stages").empty()) {
    const std::vector<Settings>& sources = settings.parts("data.mixture");
    if (std::string wrong = complaint_about_stages(settings.parts("data.stages"), sources.size()); !wrong.empty())
      complaints.push_back({{"data.stages", "data.mixture"}, std::move(wrong)});
    if (std::ranges::any_of(sources, [](const Settings& source) { return source.number("weight") != 1; }))
      complaints.push_back({{"data.mixture", "data.stages"}, "its stages have the weights; leave those of files out"});
  }
  if (has_documents && is_mixture && settings.text("data.split_column") != "none")
    complaints.push_back(
        {{"data.split_column", kSourceType}, "rows of a mixture are divided file by file; name files in data.sets"});
  return complaints;
}

std::vector<MixtureStage> mixture_stages(const Settings& settings, std::int64_t steps) {
  std::vector<MixtureStage> stages;
  for (const Settings& stage : settings.parts("data.stages")) {
    const double until = stage.number("until");
    const bool is_part = until > 0 && until < 1;
    KEEL_CHECK(!is_part || steps > 0, "data.stages: until ", until,
               " is a part of the run's steps, and the run is as long as epochs; give steps, or until in steps");
    stages.push_back({.end = std::llround(is_part ? until * static_cast<double>(steps) : until),
                      .weights = stage.numbers("weights")});
  }
  return stages;
}

}  // namespace keel
