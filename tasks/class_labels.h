#pragma once
// Classes by their names, as data has them.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// What a field says of a class: a text as it is, a whole number in digits, also where a number is whole. An Error for
// another kind of value, or a field that is not there.
std::string class_text(const Example& example, const std::string& field);

// By number where all are whole numbers, else by bytes.
std::vector<std::string> in_order_of_classes(const std::set<std::string>& found);

class ClassLabels {
 public:
  // An Error where two are equal, one is empty or not UTF-8, or there are fewer than two.
  explicit ClassLabels(std::vector<std::string> names);

  const std::vector<std::string>& names() const { return names_; }
  std::int64_t size() const { return std::ssize(names_); }
  // "a, b, c", the first 24.
  std::string listed() const;
  // An Error for one that is none of them lists them.
  std::int64_t number_of(std::string_view name) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::int64_t, std::less<>> numbers_;
};

}  // namespace keel
