#include "keel/tasks/data_keys.h"

#include <algorithm>
#include <utility>

#include "keel/data/split.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::string_view kLast = "data.last", kSets = "data.sets", kColumn = "data.split_column",
                           kFile = "data.validation_path", kNotGiven = "none";

const KeyParts& set_keys() {
  static const KeyParts kept = {
      "a set",
      {{.key = "name",
        .type = KeyType::text,
        .help = "Letters, digits and _: its metrics are NAME/loss and so on in records."},
       {.key = "path",
        .type = KeyType::path,
        .standard = kNotGiven,
        .help = "A file, as data.path; none: values say what it has."},
       {.key = "values",
        .type = KeyType::texts,
        .standard = "[]",
        .help = "Of data.split_column: rows that have one of them are the set's, and are not trained on."}}};
  return kept;
}

// Empty: nothing.
std::string complaint_about_set(const Settings& set, const std::vector<std::string>& earlier, bool has_column) {
  const std::string& name = set.text("name");
  const std::string shown = concat("set '", printable(name, 64), "'");
  const bool has_path = set.text("path") != kNotGiven, has_values = !set.texts("values").empty();
  if (!is_name(name)) return concat(shown, ": a name is letters, digits and _");
  if (name == "train" || name == "lr") return concat(shown, ": records have keel's own numbers of this name");
  if (std::ranges::find(earlier, name) != earlier.end()) return concat("two sets are named '", name, "'");
  if (has_path == has_values)
    return concat(shown, has_path ? " has path and values; remove one of the two"
                                  : " has neither path nor values; give one of the two");
  if (has_values && !has_column)
    return concat(shown, ": values are of rows or documents, and windows of a text have none; give its path");
  return "";
}

}  // namespace

KeyRow last_rows_key(std::string_view standard, const KeyCondition& when) {
  return {.key = kLast,
          .type = KeyType::choice,
          .standard = standard,
          .help =
              "What becomes of an epoch's last rows where they fill no step. fewer: a step of fewer rows; join: "
              "the next epoch's first rows fill it; drop: they are left out, others in each epoch.",
          .choices = "fewer|join|drop",
          .when_key = when.key,
          .when_values = when.values,
          .known_as = "drop_last|dataloader_drop_last"};
}

LastRows last_rows(const Settings& settings) {
  const std::string& last = settings.text(kLast);
  return last == "join" ? LastRows::join : last == "drop" ? LastRows::drop : LastRows::fewer;
}

std::vector<KeyRow> validation_keys(const KeyCondition& when, const KeyCondition& by_column) {
  return {{.key = kFile,
           .type = KeyType::path,
           .standard = kNotGiven,
           .help = "A file that is validated on in place of a part of data.path, whose examples are then all trained "
                   "on; none: a part.",
           .when_key = when.key,
           .when_values = when.values,
           .known_as = "validation_dataset"},
          {.key = kColumn,
           .type = KeyType::text,
           .standard = kNotGiven,
           .help = "The column or field whose values say which rows of data.path are in which of data.sets; rows of "
                   "other values are trained on. No model reads it unless data.inputs names it.",
           .when_key = by_column.key,
           .when_values = by_column.values,
           .known_as = "fold|split"},
          {.key = kSets,
           .type = KeyType::parts,
           .standard = "[]",
           .help = "Validation sets by name, in place of a part of data.path: files, or rows of it, as in [{name: dev, "
                   "path: dev.csv}, {name: far, values: [b, c]}]. []: data.validation_path, or a part.",
           .when_key = when.key,
           .when_values = when.values,
           .known_as = "validation_sets",
           .parts = &set_keys()}};
}

std::vector<KeyRow> example_keys() {
  std::vector<KeyRow> rows = {
      {.key = "data.validation",
       .type = KeyType::number,
       .standard = "0.1",
       .help = "Fraction of the examples, drawn by data.seed, that is never trained on; 0: none.",
       .low = 0,
       .high = 0.9,
       .known_as = "validation_ratio|validation_fraction",
       .role = KeyRole::validation_fraction}};
  for (const KeyRow& row : validation_keys()) rows.push_back(row);
  rows.push_back(last_rows_key());
  return rows;
}

std::vector<SettingsComplaint> complain_of_validation(const Settings& settings, bool has_column) {
  std::vector<SettingsComplaint> complaints;
  std::vector<std::string> names;
  bool has_values = false;
  for (const Settings& set : settings.parts(kSets)) {
    if (std::string wrong = complaint_about_set(set, names, has_column); !wrong.empty())
      complaints.push_back({{kSets}, std::move(wrong)});
    names.push_back(set.text("name"));
    has_values = has_values || !set.texts("values").empty();
  }
  if (!names.empty() && settings.text(kFile) != kNotGiven)
    complaints.push_back({{kFile, kSets}, "data.sets says what is validated on, too; remove one of the two"});
  if (!has_column) return complaints;
  const bool is_split = settings.text(kColumn) != kNotGiven;
  if (has_values && !is_split)
    complaints.push_back({{kSets, kColumn}, "a set has values, and data.split_column does not say of which column"});
  if (is_split && !has_values)
    complaints.push_back(
        {{kColumn, kSets}, "none of data.sets has values of it; name them, as in {name: a, values: [b]}"});
  return complaints;
}

std::vector<HeldOutSet> held_out_sets(const Settings& settings) {
  if (const std::string& path = settings.text(kFile); path != kNotGiven) return {{.path = path}};
  std::vector<HeldOutSet> sets;
  for (const Settings& set : settings.parts(kSets)) {
    const std::string& path = set.text("path");
    sets.push_back(
        {.name = set.text("name"), .path = path == kNotGiven ? std::string() : path, .values = set.texts("values")});
  }
  return sets;
}

DivisionOptions division_options(const Settings& settings, std::uint64_t seed, bool has_column) {
  DivisionOptions options = {.sets = held_out_sets(settings), .seed = seed};
  if (options.sets.empty()) options.fraction = settings.number("data.validation");
  if (has_column && settings.text(kColumn) != kNotGiven) options.column = settings.text(kColumn);
  return options;
}

Division::Division(DivisionOptions options, const Dataset& whole, const std::string& path)
    : options_(std::move(options)) {
  if (options_.column.empty()) return;
  std::vector<std::vector<std::string>> values;
  for (const HeldOutSet& set : options_.sets) values.push_back(set.values);
  try {
    ColumnParts parts = parts_by_column(whole, options_.column, values);
    held_out_ = std::move(parts.parts);
    trained_ = std::move(parts.rest);
  } catch (const Error& error) { throw Error(concat("data.split_column: '", path, "': "), error); }
  KEEL_CHECK(!trained_.empty(), "data.sets: every row of '", path, "' has a value of a set in '",
             printable(options_.column, 64), "'; none is left to train on");
}

DividedExamples Division::of(const DatasetPtr& whole,
                             const std::function<DatasetPtr(const std::string& path)>& open) const {
  if (options_.sets.empty()) return held_back(whole, options_.fraction, options_.seed);
  DividedExamples divided = {.trained = options_.column.empty() ? whole : chosen(whole, trained_), .validation = {}};
  for (std::size_t i = 0; i < options_.sets.size(); ++i) {
    const HeldOutSet& set = options_.sets[i];
    divided.validation.push_back({set.name, set.path.empty() ? chosen(whole, held_out_[i]) : open(set.path), set.path});
  }
  return divided;
}

}  // namespace keel
