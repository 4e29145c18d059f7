#include "keel/dist/lab/exercise.h"
#include "keel/dist/lab/report.h"
#include "keel/runtime/json.h"

namespace keel::lab {
namespace {

template <class T>
struct KindOf;
template <>
struct KindOf<std::string> {
  static Json type() { return "string"; }
};
template <>
struct KindOf<std::int64_t> {
  static Json type() { return "integer"; }
};
template <>
struct KindOf<double> {
  static Json type() { return "number"; }
};
template <>
struct KindOf<std::optional<std::int64_t>> {
  static Json type() { return Json::array({"integer", "null"}); }
};

template <>
struct KindOf<std::optional<double>> {
  static Json type() { return Json::array({"number", "null"}); }
};

Json object_of(Json type, std::string_view description) {
  Json schema;
  schema["type"] = std::move(type);
  schema["description"] = description;
  schema["additionalProperties"] = false;
  schema["required"] = Json::array();
  schema["properties"] = Json::object();
  return schema;
}

void add(Json& schema, std::string_view name, Json property) {
  schema["required"].push_back(name);
  schema["properties"][name] = std::move(property);
}

template <class T>
void add_fields(Json& schema, std::span<const Field<T>> fields) {
  for (const Field<T>& field : fields)
    std::visit(
        [&]<class Value>(Value T::*) {
          add(schema, field.name, {{"type", KindOf<Value>::type()}, {"description", field.meaning}});
        },
        field.place);
}

Json texts(std::string_view description) {
  return {{"type", "object"}, {"description", description}, {"additionalProperties", {{"type", "string"}}}};
}

Json environment() {
  Json schema = {{"type", "object"},
                 {"description", "of these variables, those that were set; no other is ever written"},
                 {"additionalProperties", false}};
  for (const std::string_view name : allowed_variables()) schema["properties"][name] = {{"type", "string"}};
  return schema;
}

Json list(std::string_view description, Json items) {
  return {{"type", "array"}, {"description", description}, {"items", std::move(items)}};
}

Json record() {
  Json schema = object_of("object", "one size of one algorithm");
  add_fields(schema, record_fields());
  Json names = Json::array();
  for (const Exercise& exercise : exercises()) names.push_back(exercise.name);
  schema["properties"]["collective"]["enum"] = names;
  for (const Variant& variant : variants()) {
    Json timing = object_of(Json::array({"object", "null"}), variant.meaning);
    add_fields(timing, timing_fields());
    add(schema, variant.name, std::move(timing));
  }
  return schema;
}

}  // namespace

std::string report_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "What `keel comm --json` writes"}};
  const Json object = object_of("object", "measurements of collectives");
  for (const auto& [name, value] : object.members()) schema[name] = value;
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
