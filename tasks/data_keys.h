#pragma once
// Keys of data that tasks have in common: what is validated on, and what becomes of an epoch's last rows.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/data/dataset.h"
#include "keel/data/sampler.h"
#include "keel/tasks/task.h"

namespace keel {

// Where a row applies (KeyRow::when_key).
struct KeyCondition {
  std::string_view key = {}, values = {};
};

// data.last: fewer, join or drop.
KeyRow last_rows_key(std::string_view standard = "fewer", const KeyCondition& when = {});
LastRows last_rows(const Settings& settings);

// data.validation_path, data.sets and data.split_column; the last where `by_column` holds.
std::vector<KeyRow> validation_keys(const KeyCondition& when = {}, const KeyCondition& by_column = {});
// Of tasks whose examples are rows: data.validation, a fraction that is drawn, then those and data.last.
std::vector<KeyRow> example_keys();
// What their values ask of each other; `has_column`: data.split_column applies.
std::vector<SettingsComplaint> complain_of_validation(const Settings& settings, bool has_column = true);

// Examples that are validated on: those of a file, or those of the training data whose column has one of the values.
struct HeldOutSet {
  std::string name = {};  // "": the only one
  std::string path = {};  // empty: the values count
  std::vector<std::string> values = {};
};
// Those that the keys name. None: a fraction is held out.
std::vector<HeldOutSet> held_out_sets(const Settings& settings);

struct DivisionOptions {
  double fraction = 0;      // held out where there are no sets, drawn by the seed
  std::string column = {};  // empty: none
  std::vector<HeldOutSet> sets = {};
  std::uint64_t seed = 0;
};
// By data.validation and the keys above; `has_column`: data.split_column applies.
DivisionOptions division_options(const Settings& settings, std::uint64_t seed, bool has_column = true);

// Which examples of a data set are trained on, and which are validated on.
class Division {
 public:
  // Reads the column of every example, where there is one. `path` is what messages call the data. An Error where a
  // column or a value is not there, or nothing is left to train on.
  Division(DivisionOptions options, const Dataset& whole, const std::string& path);

  // Of that data set, or of another with an example for each of its own. `open` makes the examples of a file.
  DividedExamples of(const DatasetPtr& whole, const std::function<DatasetPtr(const std::string& path)>& open) const;

 private:
  DivisionOptions options_;
  std::vector<std::vector<std::int64_t>> held_out_;  // of each set; none of those that are files
  std::vector<std::int64_t> trained_;                // where there is a column
};

}  // namespace keel
