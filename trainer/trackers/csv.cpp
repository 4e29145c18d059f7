// A table of comma-separated values (RFC 4180): a row for each record, a column for each name.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "keel/runtime/append_file.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/trainer/trackers/all.h"
#include "keel/trainer/trackers/paths.h"

namespace keel {
namespace {

std::string cell_of(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

std::string text_of_cell(std::string_view cell) {
  if (!cell.starts_with('"')) return std::string(cell);
  std::string text;
  bool is_second = false;  // of two quotes that mean one
  for (const char c : cell.substr(1, cell.size() - 2)) {
    is_second = c == '"' && !is_second;
    if (!is_second) text += c;
  }
  return text;
}

struct CellText {
  std::string operator()(double value) const {
    return std::isfinite(value) ? fmt::format("{}", value) : std::string(name_of_nonfinite(value));
  }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(const std::string& value) const { return cell_of(value); }
};

// The pieces between separators that are not inside quotes; what is behind the last one is none where `all` is false.
std::vector<std::string_view> pieces(std::string_view text, char separator, bool all) {
  std::vector<std::string_view> found;
  bool is_inside = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_inside = !is_inside;
    if (is_inside || text[i] != separator) continue;
    found.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  if (all) found.push_back(text.substr(begin));
  return found;
}

constexpr std::string_view kOwnColumns[] = {"step", "time"};

// A name that appears later becomes a column at the right end: the file is replaced by one whose earlier rows have
// empty cells there.
class CsvTracker : public Tracker {
 public:
  explicit CsvTracker(const Settings& settings) : path_(settings.text("path")) {}

  void begin(const RunDescription& run) override {
    path_ = tracker_path(run, path_);
    make_folders_for(path_);
    const std::string before = text_of_earlier_session(run, path_);
    if (!before.empty()) read_back(before, run.step);
    else write_text_file(path_, header());
    file_.emplace(path_);
  }

  void log(std::int64_t step, double seconds, std::span<const Logged> values) override {
    const std::size_t known = names_.size();
    for (const Logged& each : values)
      if (std::find(names_.begin(), names_.end(), each.name) == names_.end()) names_.push_back(each.name);
    if (names_.size() != known) widen(names_.size() - known);
    std::vector<std::string> cells(names_.size());
    for (const Logged& each : values)
      cells[static_cast<std::size_t>(std::find(names_.begin(), names_.end(), each.name) - names_.begin())] =
          std::visit(CellText{}, each.value);
    std::string row = fmt::format("{},{:.3f}", step, seconds);
    for (const std::string& cell : cells) row += ',' + cell;
    file_->write(row + '\n');
  }
  void end(RunStatus /*status*/) override {}

 private:
  std::string header() const {
    std::string line = concat(kOwnColumns[0], ',', kOwnColumns[1]);
    for (const std::string& name : names_) line += ',' + cell_of(name);
    return line + '\n';
  }

  // The columns of an earlier session; its rows behind `last_step`, and one that a crash cut short, are dropped.
  void read_back(const std::string& text, std::int64_t last_step) {
    const std::vector<std::string_view> rows = pieces(text, '\n', false);
    const std::vector<std::string_view> head = rows.empty() ? rows : pieces(rows.front(), ',', true);
    KEEL_CHECK(head.size() >= 2 && head[0] == kOwnColumns[0] && head[1] == kOwnColumns[1], "'", path_,
               "' does not begin with the columns step and time; move it away");
    for (std::size_t i = 2; i < head.size(); ++i) names_.push_back(text_of_cell(head[i]));
    std::string kept = header();
    for (std::size_t i = 1; i < rows.size(); ++i) {
      std::int64_t step = 0;
      std::from_chars(rows[i].data(), rows[i].data() + rows[i].size(), step);
      if (step <= last_step) kept += concat(rows[i], '\n');
    }
    if (kept != text) write_text_file(path_, kept);
  }

  void widen(std::size_t columns) {
    const std::string text = read_text_file(path_);
    const std::vector<std::string_view> rows = pieces(text, '\n', false);
    std::string wider = header();
    for (std::size_t i = 1; i < rows.size(); ++i) wider += concat(rows[i], std::string(columns, ','), '\n');
    write_text_file(path_, wider);
    file_.emplace(path_);
  }

  std::string path_;
  std::vector<std::string> names_;
  std::optional<AppendFile> file_;
};

}  // namespace

TrackerEntry csv_tracker() {
  return {
      .name = "csv",
      .summary = "a table: a row for each record, with its step and time, and a column for each name",
      .rows = {{.key = "path",
                .type = KeyType::path,
                .standard = "tracker.csv",
                .help = "The file; in the run's folder unless it is a full path. `<name>` in it is the run's name."}},
      .make = [](const Settings& settings) -> std::unique_ptr<Tracker> {
        return std::make_unique<CsvTracker>(settings);
      }};
}

}  // namespace keel
