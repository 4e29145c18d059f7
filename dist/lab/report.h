#pragma once
// What a run of measurements leaves: versioned JSON, and CSV.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/dist/lab/record.h"

namespace keel::lab {

using Texts = std::vector<std::pair<std::string, std::string>>;

struct Report {
  static constexpr int kVersion = 2;

  std::string started;  // UTC, "2026-11-21T22:00:00Z"
  bool complete = false;
  Texts software = {}, machine = {}, options = {}, environment = {};
  std::vector<int> nodes = {};            // of each rank
  std::vector<std::string> skipped = {};  // what was asked for and is not there, a line each
  std::vector<Record> records = {};
};

// Environment variables that change how ranks communicate. No other one is ever written.
std::span<const std::string_view> allowed_variables();
// The allowed variables that are set.
Texts read_environment();

std::string to_json(const Report& report);
// An Error that names `source`, what is wrong and where: text that is cut off or no JSON, another format, a later
// version, a field that is missing or of another kind.
Report parse_report(std::string_view text, std::string_view source);
Report load_report(const std::string& path);
// A line for each record, with a header.
std::string to_csv(const Report& report);

// JSON Schema (draft 2020-12) of to_json(); docs/comm.schema.json.
std::string report_schema();

}  // namespace keel::lab
