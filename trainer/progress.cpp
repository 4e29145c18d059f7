#include "keel/trainer/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kWidestBar = 30;
constexpr int kReadableBar = 20;  // which the less important parts of a line leave
constexpr int kNarrowestBar = 4;
// Return to the first column; erase from the cursor to the end of the line.
constexpr std::string_view kReturn = "\r";
constexpr std::string_view kEraseRest = "\x1b[K";

double part(double done, double all) { return all > 0 ? done / all : 0; }

double part_of_steps(const StepReport& report) {
  return part(static_cast<double>(report.step), static_cast<double>(report.steps));
}

// Whether the time will be over before the steps are done.
bool ends_by_time(const StepReport& report) { return part(report.seconds, report.time_limit) > part_of_steps(report); }

// "0:12/0:20".
std::string time_text(const StepReport& report) {
  return concat(compact_duration(report.seconds), '/', compact_duration(report.time_limit));
}

// The parts of a progress line after what is counted, the most important first.
std::vector<std::string> parts_of(const StepReport& report) {
  std::vector<std::string> parts = {fmt::format("loss {:.4f}", report.loss)};
  if (ends_by_time(report)) parts.push_back(fmt::format("step {}", report.step));
  else if (report.seconds_left) parts.push_back(compact_duration(*report.seconds_left) + " left");
  parts.push_back(concat(compact_number(report.units_per_s), ' ', report.unit == "tokens" ? "tok" : report.unit, "/s"));
  parts.push_back(fmt::format("lr {:.3g}", report.lr));
  parts.push_back(fmt::format("grad {:.2f}", report.grad_norm));
  return parts;
}

}  // namespace

std::string progress_bar(double done, int columns, bool utf8) {
  constexpr std::string_view kEighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int steps = utf8 ? 8 : 1;
  const int filled = static_cast<int>(std::clamp(done, 0.0, 1.0) * columns * steps);
  std::string text = "[";
  for (int column = 0; column < columns; ++column) {
    const int part = std::clamp(filled - column * steps, 0, steps);
    if (part == steps) text += utf8 ? "█" : "#";
    else text += utf8 ? kEighths[part] : ".";
  }
  return text + "]";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale(value);
    std::transform(locale.begin(), locale.end(), locale.begin(), [](unsigned char c) { return std::tolower(c); });
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

std::string compact_number(double value) {
  constexpr std::string_view kUnits[] = {"", "k", "M", "G"};
  std::size_t unit = 0;
  while (std::isfinite(value) && value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, kUnits[unit]);
}

std::string compact_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t minutes = total / 60, hours = minutes / 60, days = hours / 24;
  if (days > 0) return fmt::format("{}d {:02}h", days, hours % 24);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes % 60, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

ConsoleOptions console_options(int file_descriptor) {
  ConsoleOptions options;
  const char* kind = std::getenv("TERM");
  options.terminal = ::isatty(file_descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
  options.utf8 = options.terminal && locale_is_utf8();
  options.width = [file_descriptor] {
    winsize size = {};
    const bool known = ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? static_cast<int>(size.ws_col) : 80;
  };
  return options;
}

ConsoleObserver::ConsoleObserver(std::ostream& out, ConsoleOptions options) : out_(out), options_(std::move(options)) {}

ConsoleObserver::~ConsoleObserver() {
  if (!shown_.empty()) out_ << '\n' << std::flush;
}

double ConsoleObserver::now() const { return options_.now ? options_.now() : seconds_now(); }

// Everything that fits: the count of steps, or the time where that ends the run, and the loss always; then what is
// left; then a bar that can be read; then the other parts.
std::string ConsoleObserver::progress_line(const StepReport& report) const {
  const int width = std::max((options_.width ? options_.width() : 80) - 1, 0);  // a full line would wrap
  const std::string count = ends_by_time(report) ? time_text(report)
                                                 : fmt::format("{:>{}}/{}", report.step,
                                                               fmt::formatted_size("{}", report.steps), report.steps);
  constexpr std::size_t kBeforeBar = 2;  // parts
  const std::vector<std::string> parts = parts_of(report);
  std::string tail;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int needed = static_cast<int>(count.size() + tail.size() + parts[i].size()) + 2;
    if (i > 0 && needed + (i < kBeforeBar ? 0 : kReadableBar + 3) > width) break;
    tail += "  " + parts[i];
  }
  const int room = width - static_cast<int>(count.size() + tail.size()) - 3;
  if (room < kNarrowestBar) return (count + tail).substr(0, static_cast<std::size_t>(width));
  const double done = std::max(part_of_steps(report), part(report.seconds, report.time_limit));
  return concat(count, " ", progress_bar(done, std::min(room, kWidestBar), options_.utf8), tail);
}

void ConsoleObserver::on_step(const StepReport& report) {
  const std::lock_guard lock(mutex_);
  const double time = now();
  const double interval = options_.terminal ? kRedrawSeconds : options_.interval;
  const bool is_last = report.step >= report.steps || part(report.seconds, report.time_limit) >= 1;
  if (last_draw_ && !is_last && time - *last_draw_ < interval) return;
  last_draw_ = time;
  if (options_.terminal) {
    shown_ = progress_line(report);
    out_ << concat(kReturn, shown_, kEraseRest) << std::flush;
  } else {
    std::string line = ends_by_time(report) ? time_text(report) : fmt::format("step {}/{}", report.step, report.steps);
    for (const std::string& part : parts_of(report)) line += "  " + part;
    out_ << line + '\n' << std::flush;
  }
}

// Above the progress line, which moves down.
void ConsoleObserver::print_line(std::string_view line) {
  if (shown_.empty()) out_ << concat(line, '\n') << std::flush;
  else out_ << concat(kReturn, line, kEraseRest, '\n', shown_, kEraseRest) << std::flush;
}

std::optional<double> EvalReport::find(std::string_view name) const {
  for (const NamedNumber& each : values)
    if (each.name == name) return each.value;
  return std::nullopt;
}

void ConsoleObserver::on_eval(const EvalReport& report) {
  const std::lock_guard lock(mutex_);
  std::string line = fmt::format("step {}", report.step);
  for (const NamedNumber& each : report.values) {
    std::string name = each.name;
    std::replace(name.begin(), name.end(), '_', ' ');
    line += fmt::format("  {} {:.4f}", name, each.value);
  }
  print_line(line + fmt::format("  ({:.1f} s)", report.seconds));
}

void ConsoleObserver::on_checkpoint(const CheckpointReport& report) {
  const std::lock_guard lock(mutex_);
  print_line(fmt::format("step {}  saved {}", report.step, printable(report.path)));
}

void ConsoleObserver::on_message(LogLevel level, std::string_view message) {
  const std::lock_guard lock(mutex_);
  const std::string_view prefix = level == LogLevel::error ? "error: " : level == LogLevel::warning ? "warning: " : "";
  print_line(concat(prefix, printable_lines(message)));
}

}  // namespace keel
