#include "keel/trainer/metrics.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"

namespace keel {
namespace {

// The step of a record; nothing where the line is none.
std::optional<std::int64_t> step_of(std::string_view line) {
  const Json record = Json::parse_or_null(line);
  const Json* const step = record.find("step");
  if (step == nullptr || !step->is_integer()) return std::nullopt;
  return step->integer();
}

// The lines of `text` that a run resumed after `last_step` keeps.
std::string kept_lines(const std::string& path, std::string_view text, std::int64_t last_step) {
  std::string kept;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // cut short
    const std::optional<std::int64_t> step = step_of(text.substr(0, end));
    if (!step)
      throw Error(concat(path, ":", number, ": is not a record of metrics; repair the line or move the file away"));
    if (*step <= last_step) kept += text.substr(0, end + 1);
    text.remove_prefix(end + 1);
  }
  return kept;
}

// The path of a file that holds the records up to `last_step` alone, or that is not there yet.
std::string cut_back(std::string path, std::int64_t last_step) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return path;
  const std::string text = read_text_file(path);
  const std::string kept = kept_lines(path, text, last_step);
  if (kept.size() != text.size()) write_text_file(path, kept);
  return path;
}

}  // namespace

std::vector<Json> read_metrics(const std::string& path) {
  std::vector<Json> records;
  const std::string text = read_text_file(path);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    Json record = Json::parse_or_null(line);
    const Json* const step = record.find("step");
    if (step != nullptr && step->is_integer()) records.push_back(std::move(record));
  }
  return records;
}

MetricsWriter::MetricsWriter(std::string path, std::int64_t last_step) : file_(cut_back(std::move(path), last_step)) {}

void MetricsWriter::write(std::int64_t step, std::span<const Logged> metrics) {
  Json record = {{"step", step}};
  add_values(record, metrics);
  file_.write(record.dump(-1, BadUtf8::replace) + '\n');
}

}  // namespace keel
