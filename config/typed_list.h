#pragma once
// A list in a configuration whose parts each name their type, which says what keys they have:
// [{type: mlflow, uri: mlruns}, {type: csv}]. A word stands for a part with all defaults, and one part for a list of
// it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/config/yaml_reader.h"

namespace keel {

struct TypedSettings {
  std::string type;
  Settings settings;  // by keys without a section: "uri"
  bool operator==(const TypedSettings&) const = default;
};

// The types that the parts of a list may have. Their keys have no conditions.
class TypedList {
 public:
  struct Type {
    std::string_view name;
    std::shared_ptr<const Schema> schema;
  };

  void add(std::string_view name, std::span<const KeyRow> rows);
  const std::vector<Type>& types() const { return types_; }

  // A YamlError says what is wrong with the first wrong part, and which one it is: "[1].uri: expects ...".
  std::vector<TypedSettings> read(const YamlNode& node) const;
  // Every value, such that read() gives the same list back.
  std::string text(const std::vector<TypedSettings>& list) const;

 private:
  TypedSettings read_part(const YamlNode& node, const std::string& where) const;
  const Type& type_named(const YamlNode& node) const;

  std::vector<Type> types_;
};

}  // namespace keel
