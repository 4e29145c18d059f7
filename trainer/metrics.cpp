#include "keel/trainer/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"

namespace keel {
namespace {

[[noreturn]] void throw_io(const std::string& path, int code) {
  throw Error(concat("cannot write '", path, "': ", std::generic_category().message(code)), ErrorKind::io);
}

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

std::string name_of_nonfinite(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

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

MetricsWriter::MetricsWriter(std::string path, std::int64_t last_step) : path_(std::move(path)) {
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored)) {
    const std::string text = read_text_file(path_);
    const std::string kept = kept_lines(path_, text, last_step);
    if (kept.size() != text.size()) write_text_file(path_, kept);
  }
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_io(path_, errno);
}

MetricsWriter::~MetricsWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsWriter::write(std::int64_t step, std::span<const Logged> metrics) {
  Json record = {{"step", step}};
  Json nonfinite = Json::object();
  for (const Logged& metric : metrics) {
    const std::string& name = metric.name;
    KEEL_CHECK(!record.contains(name) && name != "nonfinite", "metric '", name, "' is given twice, or is reserved");
    const double* number = std::get_if<double>(&metric.value);
    if (number != nullptr && !std::isfinite(*number)) {
      record[name] = nullptr;
      nonfinite[name] = name_of_nonfinite(*number);
    } else {
      std::visit([&](const auto& value) { record[name] = value; }, metric.value);
    }
  }
  if (!nonfinite.members().empty()) record["nonfinite"] = nonfinite;
  const std::string line = record.dump(-1, BadUtf8::replace) + '\n';
  // One call a line, so that a reader of the file never sees half of one.
  ssize_t written = -1;
  do written = ::write(descriptor_, line.data(), line.size());
  while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return;
  const int code = written < 0 ? errno : ENOSPC;
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  if (written > 0 && ::ftruncate(descriptor_, end - written) != 0) throw_io(path_, errno);  // half a line
  throw_io(path_, code);
}

}  // namespace keel
