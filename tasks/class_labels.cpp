#include "keel/tasks/class_labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

constexpr std::size_t kMostShown = 64;  // characters of a name

std::optional<std::int64_t> whole_number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string class_text(const Example& example, const std::string& field) {
  const Value& value = example[field];
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  const auto* number = std::get_if<double>(&value);
  if (number != nullptr && *number == std::floor(*number) && std::abs(*number) <= 9007199254740992.0)
    return std::to_string(static_cast<std::int64_t>(*number));
  throw Error(concat("the field '", printable(field, kMostShown), "' is ",
                     number != nullptr ? concat(*number) : concat(kind_of(value)),
                     "; a class is a whole number or a text"));
}

std::vector<std::string> in_order_of_classes(const std::set<std::string>& found) {
  std::vector<std::string> classes(found.begin(), found.end());
  if (std::ranges::all_of(classes, [](const std::string& text) { return whole_number_of(text).has_value(); }))
    std::ranges::stable_sort(classes, {}, [](const std::string& text) { return *whole_number_of(text); });
  return classes;
}

ClassLabels::ClassLabels(std::vector<std::string> names) : names_(std::move(names)) {
  for (const std::string& name : names_) {
    KEEL_CHECK(!name.empty(), "the name of a class is empty");
    KEEL_CHECK(find_bad_utf8(name) == std::string_view::npos, "the name of the class '", printable(name, kMostShown),
               "' is not UTF-8");
    KEEL_CHECK(numbers_.emplace(name, std::ssize(numbers_)).second, "the class '", printable(name, kMostShown),
               "' is there twice; leave one out");
  }
  KEEL_CHECK(names_.size() >= 2, names_.empty() ? "there is no class" : "there is one class alone, '",
             names_.empty() ? "" : printable(names_.front(), kMostShown), names_.empty() ? "" : "'",
             ", and nothing is to be learnt");
}

std::string ClassLabels::listed() const {
  constexpr std::size_t kMostListed = 24;
  std::string all;
  for (std::size_t i = 0; i < std::min(names_.size(), kMostListed); ++i)
    all += concat(all.empty() ? "" : ", ", printable(names_[i], kMostShown));
  return names_.size() > kMostListed ? concat(all, " and ", names_.size() - kMostListed, " more") : all;
}

std::int64_t ClassLabels::number_of(std::string_view name) const {
  const auto found = numbers_.find(name);
  KEEL_CHECK(found != numbers_.end(), "the label '", printable(name, kMostShown), "' is none of the ", size(),
             " classes that are learnt: ", listed(),
             "; add such examples to data.path, name it in task.classes, or remove this one");
  return found->second;
}

}  // namespace keel
