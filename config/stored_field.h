#pragma once
// How Settings keep the value of a row that a task brings.

#include "keel/config/schema_row.h"
#include "keel/config/settings.h"

namespace keel {

class StoredField : public KeyField {
 public:
  explicit StoredField(const KeyRow& row) : row_(row) {}
  std::string values(const SchemaRow& row) const override;
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override;
  // Of a key that has no value because it does not apply: the text of a value as it is made.
  std::string text(const SchemaRow& row, const Settings& settings) const override;
  std::string_view choices() const override { return row_.choices; }
  const KeyParts* parts() const override { return row_.parts; }

 private:
  KeyRow row_;
};

}  // namespace keel
