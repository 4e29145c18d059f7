#include "keel/config/stored_field.h"

#include <algorithm>
#include <type_traits>

#include "keel/config/part_settings.h"
#include "keel/config/values.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

using Value = Settings::Value;

Value empty_value(KeyType type) {
  switch (type) {
    case KeyType::flag: return false;
    case KeyType::integer: return std::int64_t{0};
    case KeyType::number: return 0.0;
    case KeyType::text:
    case KeyType::path:
    case KeyType::choice: break;
    case KeyType::integers: return std::vector<std::int64_t>{};
    case KeyType::numbers: return std::vector<double>{};
    case KeyType::texts: return std::vector<std::string>{};
    case KeyType::parts: return std::vector<Settings>{};
  }
  return std::string();
}

std::string read_text(const SchemaRow& row, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) refuse_value(row, node);
  if (printable(node.text, node.text.size()) != node.text) throw Error("has characters that cannot be shown");
  return node.text;
}

// "{path, weight}".
std::string part_words(const KeyParts& parts) {
  std::string keys;
  for (const KeyRow& row : parts.rows) keys += concat(keys.empty() ? "" : ", ", row.key);
  return concat('{', keys, '}');
}

template <class T>
T read_one(const SchemaRow& row, const YamlNode& node) {
  if constexpr (std::is_same_v<T, std::string>) {
    return read_text(row, node);
  } else {
    T value{};
    read_value(row, node, value);
    return value;
  }
}

template <class T>
std::vector<T> read_list(const SchemaRow& row, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::list) refuse_value(row, node);
  std::vector<T> list;
  list.reserve(node.items.size());
  for (const YamlNode& item : node.items) list.push_back(read_one<T>(row, item));
  return list;
}

std::vector<Settings> read_parts(const SchemaRow& row, const YamlNode& node, const KeyParts& parts) {
  if (node.kind != YamlNode::Kind::list) refuse_value(row, node);
  const Schema schema(schema_rows(parts.rows));
  std::vector<Settings> list;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string where = concat('[', i, ']');
    if (node.items[i].kind != YamlNode::Kind::mapping)
      throw YamlError(node.items[i].line, concat(where, ": expects ", part_words(parts)));
    list.push_back(read_part(schema, node.items[i], where, parts.name));
  }
  return list;
}

std::string parts_text(const std::vector<Settings>& list, const KeyParts& parts) {
  const Schema schema(schema_rows(parts.rows));
  std::string text;
  for (const Settings& part : list) text += concat(text.empty() ? "" : ", ", '{', part_text(schema, part), '}');
  return concat('[', text, ']');
}

struct YamlOf {
  std::string operator()(const std::vector<Settings>& /*parts*/) const { return "[]"; }
  template <class T>
  std::string operator()(const T& value) const {
    return yaml_of(value);
  }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text;
    for (const T& each : list) text += concat(text.empty() ? "" : ", ", yaml_of(each));
    return concat('[', text, ']');
  }
};

// "a whole number >= 1" as "a list, each a whole number >= 1".
std::string each_of(const std::string& words) { return concat("a list, each ", words); }

}  // namespace

std::string StoredField::values(const SchemaRow& row) const {
  switch (row_.type) {
    case KeyType::flag: return words_for(false, row.range);
    case KeyType::integer: return words_for(std::int64_t{}, row.range);
    case KeyType::number: return words_for(0.0, row.range);
    case KeyType::text: return "a text";
    case KeyType::path: return words_for(std::string(), row.range);
    case KeyType::choice: return listed(row_.choices);
    case KeyType::integers: return each_of(words_for(std::int64_t{}, row.range));
    case KeyType::numbers: return each_of(words_for(0.0, row.range));
    case KeyType::texts: return each_of("a text");
    case KeyType::parts: return each_of(part_words(*row_.parts));
  }
  return "";
}

void StoredField::set(const SchemaRow& row, Settings& settings, const YamlNode& node) const {
  Value value = empty_value(row_.type);
  switch (row_.type) {
    case KeyType::flag: value = read_one<bool>(row, node); break;
    case KeyType::integer: value = read_one<std::int64_t>(row, node); break;
    case KeyType::number: value = read_one<double>(row, node); break;
    case KeyType::text: value = read_text(row, node); break;
    case KeyType::path: read_value(row, node, std::get<std::string>(value)); break;
    case KeyType::choice: {
      const auto place = static_cast<std::size_t>(read_choice(row, node, row_.choices));
      value = std::string(split_choices(row_.choices)[place]);
      break;
    }
    case KeyType::integers: value = read_list<std::int64_t>(row, node); break;
    case KeyType::numbers: value = read_list<double>(row, node); break;
    case KeyType::texts: value = read_list<std::string>(row, node); break;
    case KeyType::parts: value = read_parts(row, node, *row_.parts); break;
  }
  auto& values = settings.values_;
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& each) { return each.first == row_.key; });
  if (found == values.end()) values.emplace_back(row_.key, std::move(value));
  else found->second = std::move(value);
}

std::string StoredField::text(const SchemaRow& /*row*/, const Settings& settings) const {
  for (const auto& [key, value] : settings.values_)
    if (key == row_.key) {
      if (const auto* parts = std::get_if<std::vector<Settings>>(&value)) return parts_text(*parts, *row_.parts);
      return std::visit(YamlOf{}, value);
    }
  return std::visit(YamlOf{}, empty_value(row_.type));
}

std::vector<SchemaRow> schema_rows(std::span<const KeyRow> rows) {
  std::vector<SchemaRow> made;
  made.reserve(rows.size());
  for (const KeyRow& row : rows) {
    SchemaRow& next = made.emplace_back();
    next.key = row.key;
    next.field = std::make_shared<StoredField>(row);
    next.standard = row.standard;
    next.range = {.low = row.low, .high = row.high, .low_open = row.low_open, .high_open = row.high_open};
    next.when = {row.when_key, row.when_values, row.when_other};
    next.help = row.help;
    next.known_as = row.known_as;
    next.fixed = row.fixed;
    next.role = row.role;
    next.asked = row.asked;
    switch (row.on_resume) {
      case ResumeRule::by_section:
        next.on_resume = row.key.starts_with("model.") ? OnResume::refuses : OnResume::warns;
        break;
      case ResumeRule::refuses: next.on_resume = OnResume::refuses; break;
      case ResumeRule::warns: next.on_resume = OnResume::warns; break;
      case ResumeRule::ignores: next.on_resume = OnResume::ignores; break;
    }
  }
  return made;
}

}  // namespace keel
