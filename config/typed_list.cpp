#include "keel/config/typed_list.h"

#include <algorithm>

#include "keel/config/part_settings.h"
#include "keel/config/schema.h"
#include "keel/config/values.h"

namespace keel {
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
  return {std::string(type.name), keel::read_part(*type.schema, node, where, type.name, "type")};
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
    const auto type =
        std::find_if(types_.begin(), types_.end(), [&](const Type& each) { return each.name == part.type; });
    const std::string values = part_text(*type->schema, part.settings);
    text += concat(text.empty() ? "" : ", ", "{type: ", part.type, values.empty() ? "" : ", ", values, "}");
  }
  return concat("[", text, "]");
}

}  // namespace keel
