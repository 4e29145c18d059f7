#include "rank_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "whole_number.h"

namespace keel::cli {
namespace {

constexpr char kMark = '\x1e', kBetween = '\x1f';
constexpr std::string_view kNames[] = {"started", "killed", "ended", "failed", "heard"};
// What a pipe takes in one piece, so that no other rank's line comes between.
constexpr std::size_t kMostText = 3000, kMostLine = 4096;

// A line without its mark.
std::optional<RankReport> parse(std::string_view line) {
  std::array<std::string_view, 4> fields;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::size_t end = i + 1 < fields.size() ? line.find(kBetween) : line.size();
    if (end == std::string_view::npos) return std::nullopt;
    fields[i] = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  const std::string_view* const name = std::find(std::begin(kNames), std::end(kNames), fields[0]);
  const auto rank = whole_number(fields[1]), number = whole_number(fields[2]);
  if (name == std::end(kNames) || !rank || *rank < 0 || !number) return std::nullopt;
  return RankReport{static_cast<RankReport::What>(name - std::begin(kNames)), *rank, *number, printable(fields[3])};
}

}  // namespace

std::string to_line(const RankReport& report) {
  const std::string text = printable(std::string_view(report.text).substr(0, report.text.find('\n')), kMostText);
  return concat(kMark, kNames[static_cast<std::size_t>(report.what)], kBetween, report.rank, kBetween, report.number,
                kBetween, text.substr(0, kMostText), '\n');
}

void tell_launcher(const RankReport& report) {
  if (std::getenv(kReportsVariable) == nullptr) return;
  const std::string line = to_line(report);
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

std::string ReportReader::pass(std::string_view piece) {
  std::string text = std::exchange(waiting_, "");
  text += piece;
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = text.find(kMark, at);
    shown += text.substr(at, mark - at);
    if (mark == std::string::npos) break;
    const std::size_t end = text.find('\n', mark);
    if (end == std::string::npos && text.size() - mark < kMostLine) {
      waiting_ = text.substr(mark);
      break;
    }
    const std::size_t line_end = std::min(end, text.size());
    if (const auto report = parse(std::string_view(text).substr(mark + 1, line_end - mark - 1)))
      reports_.push_back(*report);
    at = line_end + 1;
  }
  return shown;
}

}  // namespace keel::cli
