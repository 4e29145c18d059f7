#pragma once
// A data set of examples in memory.

#include <algorithm>
#include <vector>

#include "keel/data/dataset.h"

namespace keel::testing {

class ListDataset : public Dataset {
 public:
  explicit ListDataset(std::vector<Example> examples) : examples_(std::move(examples)) {}
  std::int64_t size() const override { return std::ssize(examples_); }
  Example example(std::int64_t i) const override {
    check_index(i);
    return examples_[static_cast<std::size_t>(i)];
  }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    std::size_t longest = 0;
    for (const auto& [name, value] : examples_[static_cast<std::size_t>(i)].fields())
      if (const auto* integers = std::get_if<Integers>(&value)) longest = std::max(longest, integers->values.size());
    return static_cast<std::int64_t>(longest);
  }
  std::string fingerprint() const override { return "list"; }

 private:
  std::vector<Example> examples_;
};

// Example i of n: x = i, and a sequence of i % 7 + 1 numbers.
inline DatasetPtr numbered(std::int64_t n) {
  std::vector<Example> examples;
  for (std::int64_t i = 0; i < n; ++i) {
    Example example;
    example.set("x", i)
        .set("text", std::to_string(i))
        .set("ids", Integers{{i % 7 + 1}, std::vector(static_cast<std::size_t>(i % 7 + 1), i)});
    examples.push_back(std::move(example));
  }
  return std::make_shared<ListDataset>(std::move(examples));
}

}  // namespace keel::testing
