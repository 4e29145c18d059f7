// What is written is what is read, the schema says what that is, and what is broken is told.

#include "keel/dist/lab/report.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "keel/runtime/file.h"
#include "tests/dist/lab/sample_report.h"
#include "tests/temporary_folder.h"

namespace keel::lab {
namespace {

using nlohmann::json;
using testing::error_of;

bool is_of_type(const json& value, const std::string& type) {
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
         (type == "integer" && value.is_number_integer()) || (type == "number" && value.is_number()) ||
         (type == "null" && value.is_null());
}

// Where a value does not fit a schema, in those words of JSON Schema that ours uses; empty where it does.
std::string misfit(const json& value, const json& schema, const std::string& where = "") {
  static const std::vector<std::string> kKnown = {
      "$schema", "title", "type",       "description", "additionalProperties",
      "const",   "enum",  "properties", "required",    "items"};
  for (const auto& [word, unused] : schema.items())
    if (std::find(kKnown.begin(), kKnown.end(), word) == kKnown.end()) return where + ": the schema says " + word;
  if (schema.contains("const") && value != schema["const"]) return where + " is not the constant";
  if (schema.contains("enum") && std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
    return where + " is none of the list";
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(), [&](const json& type) { return is_of_type(value, type); }))
      return where + " is of another type";
  }
  if (value.is_object()) {
    for (const json& name : schema.value("required", json::array()))
      if (!value.contains(name)) return concat(where, '.', name.get<std::string>(), " is missing");
    const json properties = schema.value("properties", json::object());
    for (const auto& [name, member] : value.items()) {
      const std::string at = concat(where, '.', name);
      if (properties.contains(name)) {
        if (const std::string found = misfit(member, properties[name], at); !found.empty()) return found;
      } else if (schema.contains("additionalProperties")) {
        const json& more = schema["additionalProperties"];
        if (more == false) return at + " is not allowed";
        if (const std::string found = misfit(member, more, at); !found.empty()) return found;
      }
    }
  }
  if (value.is_array() && schema.contains("items"))
    for (std::size_t i = 0; i < value.size(); ++i)
      if (const std::string found = misfit(value[i], schema["items"], concat(where, '[', i, ']')); !found.empty())
        return found;
  return {};
}

const json& shipped_schema() {
  static const json schema = json::parse(read_text_file(KEEL_SOURCE_DIR "/docs/comm.schema.json"));
  return schema;
}

// Acceptance check 5.
TEST(CommReport, FitsTheShippedSchema) {
  EXPECT_EQ(misfit(json::parse(to_json(sample_report())), shipped_schema()), "");
  EXPECT_EQ(misfit(json::parse(to_json(Report{})), shipped_schema()), "");
}

TEST(CommReport, SchemaRefusesWhatIsLessMoreOrOther) {
  const json sound = json::parse(to_json(sample_report()));
  for (const auto& [name, unused] : sound.items()) {
    json less = sound;
    less.erase(name);
    EXPECT_NE(misfit(less, shipped_schema()), "") << name;
    json other = sound;
    other[name] = 1.5;
    EXPECT_NE(misfit(other, shipped_schema()), "") << name;
  }
  for (const auto& [name, unused] : sound["records"][1].items()) {
    json less = sound;
    less["records"][1].erase(name);
    EXPECT_NE(misfit(less, shipped_schema()), "") << name;
  }
  json more = sound;
  more["secret"] = "x";
  EXPECT_NE(misfit(more, shipped_schema()), "");
  more = sound;
  more["environment"]["HOME"] = "/root";
  EXPECT_NE(misfit(more, shipped_schema()), "");
}

TEST(CommReport, SchemaInTheDocumentsIsTheProgramsOwn) {
  EXPECT_EQ(read_text_file(KEEL_SOURCE_DIR "/docs/comm.schema.json"), report_schema())
      << "`keel docs comm-schema > docs/comm.schema.json` writes it again";
}

// Acceptance check 5, its second half.
TEST(CommReport, HoldsNoVariableButThoseOfTheList) {
  for (const char* name : {"KEEL_TEST_SECRET", "NCCL_ALGO_SECRET", "AWS_SECRET_ACCESS_KEY"})
    ::setenv(name, "hidden", 1);
  ::setenv("NCCL_PROTO", "Simple", 1);
  Report report;
  report.environment = read_environment();
  ::unsetenv("NCCL_PROTO");
  EXPECT_EQ(to_json(report).find("hidden"), std::string::npos);
  bool has_it = false;
  for (const auto& [name, value] : report.environment) {
    EXPECT_NE(std::find(allowed_variables().begin(), allowed_variables().end(), name), allowed_variables().end());
    has_it = has_it || (name == "NCCL_PROTO" && value == "Simple");
  }
  EXPECT_TRUE(has_it);
}

TEST(CommReport, IsReadAsItWasWritten) {
  Report other = sample_report();
  for (Record& record : other.records) {
    record.op = "mean";
    record.root = 2;
    record.at_once = 4;
  }
  for (const Report& report : {sample_report(), Report{}, other}) {
    const std::string text = to_json(report);
    EXPECT_EQ(to_json(parse_report(text, "it")), text);
  }
}

TEST(CommReport, ThatIsCutOffAnywhereIsRefused) {
  const std::string text = to_json(sample_report());
  for (std::size_t length = 0; length + 2 < text.size(); length += 1 + length / 40)
    EXPECT_NE(error_of([&] { parse_report(text.substr(0, length), "a.json"); }).find("a.json is not whole"),
              std::string::npos)
        << length;
}

// What version 1 had not is as it was then: sums, by nobody's root, one call at a time.
TEST(CommReport, OfVersionOneIsReadAsItWas) {
  json old = json::parse(to_json(sample_report()));
  old["version"] = 1;
  for (json& record : old["records"]) {
    for (const Field<Record>& field : record_fields())
      if (field.since > 1) record.erase(std::string(field.name));
    for (const char* variant : {"out_of_place", "in_place"})
      for (const Field<Timing>& field : timing_fields())
        if (field.since > 1 && record[variant].is_object()) record[variant].erase(std::string(field.name));
  }
  const Report report = parse_report(old.dump(), "old.json");
  ASSERT_EQ(report.records.size(), sample_report().records.size());
  EXPECT_EQ(asked_of(report.records[0]), "all_reduce");
  EXPECT_EQ(report.records[0].at_once, 1);
  EXPECT_FALSE(report.records[0].root.has_value());
  old["version"] = 2;
  EXPECT_NE(error_of([&] { parse_report(old.dump(), "old.json"); }).find("records[0].op is missing"),
            std::string::npos);
}

TEST(CommReport, NamesWhatWasAskedForApartFromTheUsual) {
  Record record;
  record.collective = "reduce";
  record.op = "sum";
  record.root = 0;
  EXPECT_EQ(asked_of(record), "reduce");
  record.op = "maximum";
  record.root = 2;
  record.at_once = 4;
  EXPECT_EQ(asked_of(record), "reduce (maximum, root 2, 4 at once)");
}

TEST(CommReport, OfAnotherFormatOrALaterVersionSaysSo) {
  json later = json::parse(to_json(sample_report()));
  later["version"] = 3;
  EXPECT_EQ(error_of([&] { parse_report(later.dump(), "a.json"); }),
            "a.json has version 3, and this keel reads version 2: a newer keel wrote it");
  for (const char* text : {"{}", "[]", "3", "{\"format\": \"other\", \"version\": 1}"})
    EXPECT_EQ(error_of([&] { parse_report(text, "a.json"); }), "a.json was not written by `keel comm --json`") << text;
  EXPECT_NE(error_of([] { load_report("/nonexistent/a.json"); }).find("/nonexistent/a.json"), std::string::npos);
}

// Whatever value is replaced or removed, the reader says where or accepts what fits.
TEST(CommReport, SaysWhichFieldIsMissingOrOfAnotherKind) {
  const json sound = json::parse(to_json(sample_report()));
  for (const Field<Record>& field : record_fields()) {
    const std::string name(field.name), place = "a.json: records[1]." + name;
    json broken = sound;
    broken["records"][1][name] = json::array();
    EXPECT_EQ(error_of([&] { parse_report(broken.dump(), "a.json"); }).rfind(place + " must be", 0), 0u) << name;
    broken["records"][1].erase(name);
    EXPECT_EQ(error_of([&] { parse_report(broken.dump(), "a.json"); }), place + " is missing");
  }
  for (const Field<Timing>& field : timing_fields()) {
    const std::string name(field.name), place = "a.json: records[1].in_place." + name;
    json broken = sound;
    broken["records"][1]["in_place"][name] = "text";
    EXPECT_EQ(error_of([&] { parse_report(broken.dump(), "a.json"); }).rfind(place + " must be", 0), 0u) << name;
  }
  json broken = sound;
  broken["records"][0]["ranks"] = 0;
  EXPECT_NE(error_of([&] { parse_report(broken.dump(), "a.json"); }), "");
}

TEST(CommReport, AsCsvHasACellForEachColumnInEachLine) {
  const std::string csv = to_csv(sample_report());
  const auto lines = std::count(csv.begin(), csv.end(), '\n');
  EXPECT_EQ(lines, 1 + static_cast<long>(sample_report().records.size()));
  const auto columns = static_cast<long>(record_fields().size() + variants().size() * timing_fields().size());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), ','), lines * (columns - 1));
  EXPECT_NE(csv.find(",out_time_us,"), std::string::npos);
  EXPECT_NE(csv.find(",in_busbw,"), std::string::npos);
}

}  // namespace
}  // namespace keel::lab
