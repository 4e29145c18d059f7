#include <algorithm>

#include "keel/config/schema_row.h"
#include "keel/trainer/foreign/kind.h"

namespace keel {

std::span<const ForeignKind* const> foreign_kinds() {
  static constexpr const ForeignKind* kKinds[] = {&foreign::kHps, &foreign::kParameters, &foreign::kAccelerate,
                                                  &foreign::kDeepSpeed, &foreign::kConfigsJson};
  return kKinds;
}

const ForeignKind* kind_of(const YamlNode& root) {
  if (root.kind != YamlNode::Kind::mapping) return nullptr;
  for (const ForeignKind* kind : foreign_kinds())
    for (const std::string_view sign : split_choices(kind->signs))
      if (std::any_of(root.entries.begin(), root.entries.end(),
                      [&](const YamlEntry& entry) { return entry.key == sign; }))
        return kind;
  return nullptr;
}

}  // namespace keel
