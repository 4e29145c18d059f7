#pragma once
// Which fields of a file's examples the task `supervised` reads, and what they become.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/tasks/heads.h"

namespace keel {

inline constexpr std::string_view kInputs = "inputs";  // the field of what the model reads, f32 (rows, inputs)

// Numbers as the model has them: (number - mean) / deviation. Without means they are as they are.
struct ColumnScale {
  std::vector<double> mean, deviation;
  bool is_set() const { return !mean.empty(); }
  double scaled(double number, std::size_t column) const {
    return is_set() ? (number - mean[column]) / deviation[column] : number;
  }
  double unscaled(double number, std::size_t column) const {
    return is_set() ? number * deviation[column] + mean[column] : number;
  }
};

struct HeadColumns {
  std::int64_t width = 0;            // numbers, or classes
  ColumnScale scale = {};            // of numbers
  std::vector<std::string> classes;  // by number, where the data says them
};

class SupervisedColumns {
 public:
  // What the first example has: `inputs`, or all numbers but the heads' and the field `left_out`. A field that is not
  // there, or is no number, is an Error that names it. Ranges of names (p0..p9) are expanded.
  SupervisedColumns(const Dataset& data, const std::vector<std::string>& inputs,
                    const std::vector<SupervisedHead>& heads, const std::string& left_out = {});
  // Of json(). An Error where it does not fit the heads.
  SupervisedColumns(std::string_view json, const std::vector<SupervisedHead>& heads);
  std::string json() const;

  // Classes by name: all that the data has, numbers by size, words by their letters. Reads every example where a head
  // asks for them.
  void find_classes(const Dataset& data);
  // Means and deviations (of all examples: the sum of squares by their number). Reads every example.
  void find_scales(const Dataset& trained, bool of_inputs);

  std::int64_t inputs() const { return width_; }
  const std::vector<std::string>& input_names() const { return inputs_; }
  const HeadColumns& head(std::size_t i) const { return columns_[i]; }

  // What is missing, of another shape or no number is an Error that names the field.
  Example prepared(const Example& example, bool has_targets) const;

 private:
  void add_head(const Example& first, const SupervisedHead& head);
  std::int64_t class_of(const Example& example, std::size_t head) const;

  std::vector<SupervisedHead> heads_;
  std::vector<std::string> inputs_;
  std::int64_t width_ = 0;  // of all inputs together
  ColumnScale scale_;
  std::vector<HeadColumns> columns_;
  std::vector<std::map<std::string, std::int64_t, std::less<>>> numbers_;  // of each head's classes
};

// Every example as prepared() makes it: `inputs`, and a field for each head. Errors name the file and the example.
// Reading all of them finds the first that does not fit.
DatasetPtr prepared(const DatasetPtr& data, std::shared_ptr<const SupervisedColumns> columns, const std::string& path,
                    bool has_targets);
void read_all(const Dataset& data);

}  // namespace keel
