// Fields of rows that are members of Config.

#include <algorithm>
#include <functional>
#include <span>
#include <type_traits>

#include "keel/config/values.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

template <class T>
class MemberField : public KeyField {
 public:
  explicit MemberField(Access<T> access) : access_(access) {}
  std::string values(const SchemaRow& row) const override { return words_for(T{}, row.range); }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    read_value(row, node, access_(config_of(settings)));
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return yaml_of(access_(const_cast<Config&>(config_of(settings))));  // which is only read
  }

 private:
  Access<T> access_;
};

class GroupsField : public KeyField {
 public:
  explicit GroupsField(Access<std::vector<GroupPattern>> access) : access_(access) {}
  std::string values(const SchemaRow& /*row*/) const override { return "a list of groups"; }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    if (node.kind != YamlNode::Kind::list) refuse_value(row, node);
    set_groups(access_(config_of(settings)), node);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return groups_text(access_(const_cast<Config&>(config_of(settings))));  // which is only read
  }

 private:
  Access<std::vector<GroupPattern>> access_;
};

// The range of the row is that of each number.
class IntegersField : public KeyField {
 public:
  explicit IntegersField(Access<std::vector<std::int64_t>> access) : access_(access) {}
  std::string values(const SchemaRow& row) const override {
    return concat("a list of: ", words_for(std::int64_t{}, row.range));
  }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    if (node.kind != YamlNode::Kind::list) refuse_value(row, node);
    std::vector<std::int64_t> numbers;
    for (const YamlNode& item : node.items) read_value(row, item, numbers.emplace_back());
    access_(config_of(settings)) = std::move(numbers);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    std::string text;
    for (const std::int64_t number : access_(const_cast<Config&>(config_of(settings))))  // which is only read
      text += concat(text.empty() ? "" : ", ", number);
    return concat('[', text, ']');
  }

 private:
  Access<std::vector<std::int64_t>> access_;
};

class ListField : public KeyField {
 public:
  ListField(Access<std::vector<TypedSettings>> access, const TypedList& types, std::string_view values)
      : access_(access), types_(types), values_(values) {}
  std::string values(const SchemaRow& /*row*/) const override { return std::string(values_); }
  void set(const SchemaRow& /*row*/, Settings& settings, const YamlNode& node) const override {
    access_(config_of(settings)) = types_.read(node);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return types_.text(access_(const_cast<Config&>(config_of(settings))));  // which is only read
  }
  bool takes_mappings() const override { return true; }

 private:
  Access<std::vector<TypedSettings>> access_;
  const TypedList& types_;
  std::string_view values_;
};

class ChoiceField : public KeyField {
 public:
  ChoiceField(int (*get)(const Config&), void (*set)(Config&, int), std::string_view choices,
              std::string_view other_words)
      : get_(get), set_(set), choices_(choices), other_words_(other_words) {}
  std::string values(const SchemaRow& /*row*/) const override { return listed(choices_); }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    set_(config_of(settings), read_choice(row, node, choices_, other_words_));
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return std::string(split_choices(choices_).at(static_cast<std::size_t>(get_(config_of(settings)))));
  }
  std::string_view choices() const override { return choices_; }

 private:
  int (*get_)(const Config&);
  void (*set_)(Config&, int);
  std::string_view choices_, other_words_;
};

class ParsedField : public KeyField {
 public:
  ParsedField(std::string (*get)(const Config&), void (*set)(Config&, std::string_view), std::string_view grammar)
      : get_(get), set_(set), grammar_(grammar) {}
  std::string values(const SchemaRow& /*row*/) const override { return std::string(grammar_); }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    if (node.kind != YamlNode::Kind::scalar) refuse_value(row, node);
    set_(config_of(settings), node.text);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return get_(config_of(settings));
  }

 private:
  std::string (*get_)(const Config&);
  void (*set_)(Config&, std::string_view);
  std::string_view grammar_;
};

class ScheduleField : public KeyField {
 public:
  explicit ScheduleField(const ScheduleUse& use) : use_(use) {}
  std::string values(const SchemaRow& /*row*/) const override { return describe_schedule_values(use_); }
  void set(const SchemaRow& /*row*/, Settings& settings, const YamlNode& node) const override {
    set_schedule_value(use_, config_of(settings).scheduler.settings, node);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return schedule_field_text(use_, config_of(settings).scheduler.settings);
  }

 private:
  const ScheduleUse& use_;
};

bool has_unit(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar && std::ranges::any_of(node.text, [](unsigned char c) {
           return c == 's' || c == 'S' || c == 'p' || c == 'P' || c == '%';
         });
}

// A number of steps is read as any whole number; what has a unit, as Length::parse() says.
Length read_length(const SchemaRow& row, const YamlNode& node) {
  if (has_unit(node)) {
    const Length length = Length::parse(node.text);
    if (!length.has_unit() && !row.range.contains(static_cast<double>(length.steps()))) refuse_value(row, node);
    return length;
  }
  std::int64_t steps = 0;
  read_value(row, node, steps);
  return Length(steps);
}

std::string length_words(const SchemaRow& row) {
  return concat(words_for(std::int64_t{}, row.range), ", epochs as in 0.5 epochs, or a part of the run as in 10%");
}

// A field of lengths, which measure_lengths() finds.
class MeasuredField : public KeyField {
 public:
  virtual std::span<Length> lengths_of(Config& config) const = 0;
};

class LengthField : public MeasuredField {
 public:
  explicit LengthField(Access<Length> access) : access_(access) {}
  std::string values(const SchemaRow& row) const override { return length_words(row); }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    access_(config_of(settings)) = read_length(row, node);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return access_(const_cast<Config&>(config_of(settings))).text();
  }
  std::span<Length> lengths_of(Config& config) const override { return {&access_(config), 1}; }

 private:
  Access<Length> access_;
};

class LengthsField : public MeasuredField {
 public:
  explicit LengthsField(Access<std::vector<Length>> access) : access_(access) {}
  std::string values(const SchemaRow& row) const override { return concat("a list of: ", length_words(row)); }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    if (node.kind != YamlNode::Kind::list) refuse_value(row, node);
    std::vector<Length> lengths;
    for (const YamlNode& item : node.items) lengths.push_back(read_length(row, item));
    access_(config_of(settings)) = std::move(lengths);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    std::string text;
    for (const Length& each : access_(const_cast<Config&>(config_of(settings))))  // which is only read
      text += concat(text.empty() ? "" : ", ", each.text());
    return concat('[', text, ']');
  }
  std::span<Length> lengths_of(Config& config) const override { return access_(config); }

 private:
  Access<std::vector<Length>> access_;
};

template <class T>
FieldPtr field_of(Access<T> access) {
  return std::make_shared<MemberField<T>>(access);
}

}  // namespace

FieldPtr member(Access<bool> access) { return field_of(access); }
FieldPtr member(Access<int> access) { return field_of(access); }
FieldPtr member(Access<std::int64_t> access) { return field_of(access); }
FieldPtr member(Access<std::uint64_t> access) { return field_of(access); }
FieldPtr member(Access<double> access) { return field_of(access); }
FieldPtr member(Access<std::array<double, 2>> access) { return field_of(access); }
FieldPtr member(Access<std::string> access) { return field_of(access); }
FieldPtr member(Access<std::vector<GroupPattern>> access) { return std::make_shared<GroupsField>(access); }
FieldPtr member(Access<std::vector<std::int64_t>> access) { return std::make_shared<IntegersField>(access); }
FieldPtr member(Access<Length> access) { return std::make_shared<LengthField>(access); }
FieldPtr member(Access<std::vector<Length>> access) { return std::make_shared<LengthsField>(access); }

void for_each_length(Config& config, const std::function<void(const SchemaRow& row, Length& length)>& f) {
  for (const SchemaRow& row : config.schema().rows())
    if (const auto* const field = dynamic_cast<const MeasuredField*>(row.field.get()))
      for (Length& each : field->lengths_of(config)) f(row, each);
}

FieldPtr list_field(Access<std::vector<TypedSettings>> access, const TypedList& types, std::string_view values) {
  return std::make_shared<ListField>(access, types, values);
}
FieldPtr choice_field(int (*get)(const Config&), void (*set)(Config&, int), std::string_view choices,
                      std::string_view other_words) {
  return std::make_shared<ChoiceField>(get, set, choices, other_words);
}
FieldPtr parsed_field(std::string (*get)(const Config&), void (*set)(Config&, std::string_view),
                      std::string_view grammar) {
  return std::make_shared<ParsedField>(get, set, grammar);
}
FieldPtr schedule_field(const ScheduleUse& use) { return std::make_shared<ScheduleField>(use); }

}  // namespace keel
