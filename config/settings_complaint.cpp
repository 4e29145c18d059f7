// What is wrong with the rows that a task brings.

#include <algorithm>
#include <iterator>

#include "keel/config/schema.h"
#include "keel/config/settings.h"

namespace keel {
namespace {

// "task", "model", "data" or "eval", a dot, and a name.
bool is_name_of_key(std::string_view key) {
  const std::string_view section = key.substr(0, key.find('.'));
  constexpr std::string_view kSections[] = {"task", "model", "data", "eval"};
  if (section.size() == key.size() ||
      std::find(std::begin(kSections), std::end(kSections), section) == std::end(kSections))
    return false;
  const std::string_view name = key.substr(section.size() + 1);
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool has_word(std::string_view choices, std::string_view word) {
  const std::vector<std::string_view> parts = split_choices(choices);
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

class Complaints {
 public:
  Complaints(std::span<const KeyRow> rows, std::span<const std::string_view> taken)
      : rows_(rows), taken_(taken), made_(schema_rows(rows)) {}

  std::string all() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      check_key(i);
      check_row(rows_[i]);
      check_role(i);
      check_condition(i);
      check_default(i);
    }
    return text_;
  }

 private:
  void complain(const KeyRow& row, std::string_view what) {
    text_ += concat(text_.empty() ? "" : "\n", row.key.empty() ? "a key without a name" : row.key, ": ", what);
  }
  bool is_taken(std::string_view key) const { return std::find(taken_.begin(), taken_.end(), key) != taken_.end(); }
  std::span<const KeyRow> earlier(std::size_t i) const { return rows_.first(i); }

  void check_role(std::size_t i) {
    const KeyRow& row = rows_[i];
    if (row.role == KeyRole::none) return;
    for (const KeyRow& other : earlier(i))
      if (other.role == row.role && other.key != row.key)
        return complain(row, concat("is ", words_of(row.role), ", as ", other.key, " is"));
    if (row.role != KeyRole::heads) return;
    for (const std::string_view part : {"name", "type", "loss", "weight"})
      if (row.parts == nullptr || std::ranges::find(row.parts->rows, part, &KeyRow::key) == row.parts->rows.end())
        return complain(row, concat("heads are parts with the key ", part));
  }

  void check_key(std::size_t i) {
    const KeyRow& row = rows_[i];
    if (!is_name_of_key(row.key))
      return complain(row, "a key is task, model, data or eval, a dot, and letters, digits and _");
    if (is_taken(row.key)) complain(row, "there is a key of this name already");
    bool is_new = true;
    for (const KeyRow& other : earlier(i)) {
      is_new &= other.key != row.key;
      if (other.key == row.key && other.when_key == row.when_key && (row.when_key.empty() || overlap(other, row)))
        complain(row, row.when_key.empty() ? "is there twice" : "is there twice under one condition");
      if (other.key == row.key && other.type != row.type) complain(row, "its rows have different types");
    }
    if (!is_new && rows_[i - 1].key != row.key) complain(row, "its rows must be next to each other");
    if (!is_new && rows_[i - 1].key == row.key && rows_[i - 1].when_key != row.when_key)
      complain(row, "its rows must depend on one key");
  }

  // Whether some value of the key that both depend on makes both apply.
  static bool overlap(const KeyRow& a, const KeyRow& b) {
    if (a.when_other && b.when_other) return true;
    const KeyRow& listed = a.when_other ? b : a;
    const KeyRow& against = a.when_other ? a : b;
    const std::vector<std::string_view> values = split_choices(listed.when_values);
    return std::any_of(values.begin(), values.end(), [&](std::string_view value) {
      return has_word(against.when_values, value) != against.when_other;
    });
  }

  void check_row(const KeyRow& row) {
    if (row.help.empty() || row.help.find('\n') != std::string_view::npos) complain(row, "needs a help of one line");
    if ((row.type == KeyType::choice) != !row.choices.empty())
      complain(row, row.choices.empty() ? "a choice needs choices, as in \"a|b\"" : "only a choice has choices");
    if ((row.type == KeyType::parts) != (row.parts != nullptr))
      complain(row, row.parts == nullptr ? "parts need keys" : "only parts have keys of their own");
    if (row.parts != nullptr) check_parts(row);
    if (row.low_open || row.high_open ? !(row.low < row.high) : !(row.low <= row.high))
      complain(row, "no number is within its limits");
  }

  void check_parts(const KeyRow& whole) {
    Complaints parts(whole.parts->rows, {});
    for (std::size_t i = 0; i < whole.parts->rows.size(); ++i) {
      const KeyRow& row = whole.parts->rows[i];
      parts.check_row(row);
      parts.check_default(i);
      if (row.key.empty() || row.key.find('.') != std::string_view::npos || !row.when_key.empty() ||
          row.standard.starts_with('='))
        parts.complain(row, "a key of a part has neither a section nor a condition, and a default of its own");
    }
    if (!parts.text_.empty()) complain(whole, parts.text_);
  }

  void check_condition(std::size_t i) {
    const KeyRow& row = rows_[i];
    if (row.when_key.empty() != row.when_values.empty()) return complain(row, "a condition is a key and its values");
    if (row.when_key.empty() || is_taken(row.when_key)) return;
    std::string values;
    for (const KeyRow& other : earlier(i)) {
      if (other.key != row.when_key) continue;
      if (other.type == KeyType::text || other.type == KeyType::path) return;
      values += concat(values.empty() ? "" : "|", other.type == KeyType::flag ? "false|true" : other.choices);
    }
    if (values.empty())
      return complain(row, concat("depends on ", row.when_key, ", which is no choice, flag or text of an earlier row"));
    for (const std::string_view value : split_choices(row.when_values))
      if (!has_word(values, value))
        complain(row, concat("applies where ", row.when_key, " is ", value, ", which it never is"));
  }

  void check_default(std::size_t i) {
    const KeyRow& row = rows_[i];
    if (row.standard.empty()) return;
    if (row.standard[0] == '=') {
      const std::string_view key = row.standard.substr(1);
      const auto rows = earlier(i);
      if (!is_taken(key) &&
          std::none_of(rows.begin(), rows.end(), [&](const KeyRow& other) { return other.key == key; }))
        complain(row, concat("has the value of ", key, " by default, which is no earlier key"));
      return;
    }
    if ((row.type == KeyType::choice && row.choices.empty()) || (row.type == KeyType::parts && row.parts == nullptr))
      return;
    try {
      const YamlDocument read = read_yaml(row.standard);
      if (!read.problems.empty()) return complain(row, concat("its default: ", read.problems[0].message));
      Settings scratch;
      set_value(made_[i], scratch, read.root);
    } catch (const Error& error) { complain(row, concat("its default: ", error.what())); }
  }

  std::span<const KeyRow> rows_;
  std::span<const std::string_view> taken_;
  std::vector<SchemaRow> made_;
  std::string text_;
};

}  // namespace

std::string complaint_about(std::span<const KeyRow> rows, std::span<const std::string_view> taken) {
  return Complaints(rows, taken).all();
}

}  // namespace keel
