#include <nlohmann/json.hpp>

#include "keel/dist/lab/exercise.h"
#include "keel/dist/lab/report.h"

namespace keel::lab {
namespace {

using nlohmann::ordered_json;

template <class T>
struct KindOf;
template <>
struct KindOf<std::string> {
  static ordered_json type() { return "string"; }
};
template <>
struct KindOf<std::int64_t> {
  static ordered_json type() { return "integer"; }
};
template <>
struct KindOf<double> {
  static ordered_json type() { return "number"; }
};
template <>
struct KindOf<std::optional<std::int64_t>> {
  static ordered_json type() { return {"integer", "null"}; }
};

ordered_json object_of(ordered_json type, std::string_view description) {
  ordered_json schema;
  schema["type"] = std::move(type);
  schema["description"] = description;
  schema["additionalProperties"] = false;
  schema["required"] = ordered_json::array();
  schema["properties"] = ordered_json::object();
  return schema;
}

void add(ordered_json& schema, std::string_view name, ordered_json property) {
  schema["required"].push_back(name);
  schema["properties"][std::string(name)] = std::move(property);
}

template <class T>
void add_fields(ordered_json& schema, std::span<const Field<T>> fields) {
  for (const Field<T>& field : fields)
    std::visit(
        [&]<class Value>(Value T::*) {
          add(schema, field.name, {{"type", KindOf<Value>::type()}, {"description", field.meaning}});
        },
        field.place);
}

ordered_json texts(std::string_view description) {
  return {{"type", "object"}, {"description", description}, {"additionalProperties", {{"type", "string"}}}};
}

ordered_json environment() {
  ordered_json schema = object_of("object", "of these variables, those that were set; no other is ever written");
  schema.erase("required");
  for (const std::string_view name : allowed_variables())
    schema["properties"][std::string(name)] = {{"type", "string"}};
  return schema;
}

ordered_json list(std::string_view description, ordered_json items) {
  return {{"type", "array"}, {"description", description}, {"items", std::move(items)}};
}

ordered_json record() {
  ordered_json schema = object_of("object", "one size of one algorithm");
  add_fields(schema, record_fields());
  ordered_json names = ordered_json::array();
  for (const Exercise& exercise : exercises()) names.push_back(exercise.name);
  schema["properties"]["collective"]["enum"] = names;
  for (const Variant& variant : variants()) {
    ordered_json timing = object_of({"object", "null"}, variant.meaning);
    add_fields(timing, timing_fields());
    add(schema, variant.name, std::move(timing));
  }
  return schema;
}

}  // namespace

std::string report_schema() {
  ordered_json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "What `keel comm --json` writes";
  schema.update(object_of("object", "measurements of collectives"));
  add(schema, "format", {{"const", "keel comm"}});
  add(schema, "version", {{"const", Report::kVersion}});
  add(schema, "started", {{"type", "string"}, {"description", "UTC"}});
  add(schema, "complete", {{"type", "boolean"}, {"description", "false: the run ended before all was measured"}});
  add(schema, "software", texts("versions of keel, its compiler and the libraries below"));
  add(schema, "machine", texts("hosts, processors and devices"));
  add(schema, "options", texts("of the command line, as they were understood"));
  add(schema, "environment", environment());
  add(schema, "nodes", list("the node of each rank", {{"type", "integer"}}));
  add(schema, "skipped", list("what was asked for and is not there", {{"type", "string"}}));
  add(schema, "records", list("in the order of measuring", record()));
  return schema.dump(1) + '\n';
}

}  // namespace keel::lab
