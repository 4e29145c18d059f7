#include "keel/config/typed_list.h"

#include <algorithm>

#include "keel/config/schema.h"
#include "keel/config/values.h"

namespace keel {
namespace {

// Calls f; what it throws is told as wrong with that place.
template <class F>
auto at_place(const std::string& where, int line, const F& f) {
  try {
    return f();
  } catch (const Error& error) { throw YamlError(line, concat(where, ": ", error.what())); }
}

const SchemaRow& row_of(const Schema& schema, const std::string& key, std::string_view type) {
  for (const SchemaRow& row : schema.rows())
    if (row.key == key) return row;
  std::string known;
  for (const SchemaRow& row : schema.rows()) known += concat(known.empty() ? "" : ", ", row.key);
  const std::string likely = schema.likely_key(key);
  throw Error(concat(type, " has no such key",
                     likely.empty() ? concat("; it has ", known) : concat("; did you mean '", likely, "'?")));
}

}  // namespace

void TypedList::add(std::string_view name, std::span<const KeyRow> rows) {
  types_.push_back({name, std::make_shared<const Schema>(schema_rows(rows))});
}

const TypedList::Type& TypedList::type_named(const YamlNode& node) const {
  std::string names;
  for (const Type& type : types_) names += concat(names.empty() ? "" : "|", type.name);
  // The words of a choice are those of its field.
  const KeyRow choice[] = {{.key = "type", .type = KeyType::choice, .choices = names}};
  const std::vector<SchemaRow> row = schema_rows(choice);
  return types_[static_cast<std::size_t>(read_choice(row.front(), node, names))];
}

TypedSettings TypedList::read_part(const YamlNode& node, const std::string& where) const {
  const auto type_entry = std::find_if(node.entries.begin(), node.entries.end(),
                                       [](const YamlEntry& entry) { return entry.key == "type"; });
  const bool is_word = node.kind == YamlNode::Kind::scalar;
  if (!is_word && type_entry == node.entries.end())
    throw YamlError(node.line, concat(where, ": expects a type, as in {type: ", types_.front().name, "}"));
  const YamlNode& word = is_word ? node : type_entry->value;
  const Type& type =
      at_place(is_word ? where : where + ".type", word.line, [&]() -> const Type& { return type_named(word); });
  TypedSettings part{std::string(type.name), {}};
  for (const SchemaRow& row : type.schema->rows())
    if (!row.standard.empty()) set_value(row, part.settings, read_yaml(row.standard).root);
  std::vector<std::string_view> given;
  for (const YamlEntry& entry : node.entries) {
    if (entry.key == "type") continue;
    at_place(concat(where, '.', entry.key), entry.line, [&] {
      const SchemaRow& row = row_of(*type.schema, entry.key, type.name);
      set_value(row, part.settings, entry.value);
      given.push_back(row.key);
    });
  }
  for (const SchemaRow& row : type.schema->rows())
    if (row.standard.empty() && std::find(given.begin(), given.end(), row.key) == given.end())
      throw YamlError(node.line, concat(where, '.', row.key, ": is missing, and has no default"));
  return part;
}

std::vector<TypedSettings> TypedList::read(const YamlNode& node) const {
  std::vector<TypedSettings> list;
  if (node.kind != YamlNode::Kind::list) return {read_part(node, "[0]")};
  for (std::size_t i = 0; i < node.items.size(); ++i) list.push_back(read_part(node.items[i], concat("[", i, "]")));
  return list;
}

std::string TypedList::text(const std::vector<TypedSettings>& list) const {
  std::string text;
  for (const TypedSettings& part : list) {
    text += concat(text.empty() ? "" : ", ", "{type: ", part.type);
    const auto type =
        std::find_if(types_.begin(), types_.end(), [&](const Type& each) { return each.name == part.type; });
    for (const SchemaRow& row : type->schema->rows())
      text += concat(", ", row.key, ": ", value_text(row, part.settings));
    text += "}";
  }
  return concat("[", text, "]");
}

}  // namespace keel
