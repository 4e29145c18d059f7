#include "keel/tokenizers/component_list.h"

#include <algorithm>

namespace keel {

ComponentFields::ComponentFields(const JsonPlace& component, const std::vector<ComponentField>& declared)
    : component_(component) {
  std::vector<std::string_view> names = {"type"};
  for (const ComponentField& field : declared) {
    names.push_back(field.name);
    if (field.fallback.empty()) (void)component.at(field.name);
    else fallbacks_.emplace_back(field.name, Json::parse(field.fallback));
  }
  component.allow(names);
}

JsonPlace ComponentFields::operator[](std::string_view name) const {
  if (component_.has(name)) return component_.at(name);
  const auto fallback =
      std::find_if(fallbacks_.begin(), fallbacks_.end(), [&](const auto& f) { return f.first == name; });
  if (fallback == fallbacks_.end()) component_.fail(concat("its row declares no field ", name), ErrorKind::internal);
  return component_.of(name, fallback->second);
}

std::size_t find_component(const JsonPlace& component, std::string_view kind,
                           const std::vector<std::string_view>& types) {
  const JsonPlace type = component.at("type");
  const auto found = std::find(types.begin(), types.end(), type.text());
  if (found != types.end()) return static_cast<std::size_t>(found - types.begin());
  const std::string near = nearest(type.text(), types);
  std::string known;
  for (const std::string_view name : types) known += concat(known.empty() ? "" : ", ", name);
  type.fail(concat("'", type.text(), "' is no ", kind, " that is supported", near.empty() ? "" : ", meant is perhaps ",
                   near, "; supported are ", known),
            ErrorKind::unsupported);
}

PrependScheme prepend_scheme_of(const ComponentFields& metaspace) {
  const auto scheme = metaspace["prepend_scheme"].choice<PrependScheme>(
      {{"always", PrependScheme::always}, {"first", PrependScheme::first}, {"never", PrependScheme::never}});
  if (!metaspace.has("add_prefix_space") || metaspace["add_prefix_space"].boolean()) return scheme;
  if (metaspace.has("prepend_scheme") && scheme != PrependScheme::never)
    metaspace["add_prefix_space"].fail("false contradicts prepend_scheme, which must be never then");
  return PrependScheme::never;
}

PatternPtr pattern_of(const JsonPlace& pattern) {
  pattern.allow({"String", "Regex"});
  if (pattern.has("String") == pattern.has("Regex"))
    pattern.fail(R"(must be {"String": TEXT} or {"Regex": EXPRESSION})");
  if (pattern.has("String")) return patterns::literal(pattern.at("String").text());
  const JsonPlace expression = pattern.at("Regex");
  return expression.located([&] { return patterns::expression(expression.text()); });
}

}  // namespace keel
