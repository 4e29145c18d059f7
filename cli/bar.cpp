#include "bar.h"

#include <unistd.h>

#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/stopwatch.h"

namespace keel::cli {
namespace {

constexpr int kBarColumns = 25;

}  // namespace

Bar::Bar(std::string work, double patience)
    : Bar(std::move(work), patience, console_options(STDERR_FILENO), std::cerr) {}

Bar::Bar(std::string work, double patience, ConsoleOptions console, std::ostream& out)
    : work_(std::move(work)), patience_(patience), console_(std::move(console)), out_(out), begun_(now()) {}

Bar::~Bar() {
  if (percent_ != kNothing) out_ << "\r\x1b[K" << std::flush;
}

double Bar::now() const { return console_.now ? console_.now() : seconds_now(); }

void Bar::show(std::uint64_t done, std::uint64_t total) {
  if (!console_.terminal || total == 0 || now() - begun_ < patience_) return;
  const double fraction = static_cast<double>(done) / static_cast<double>(total);
  const auto percent = static_cast<std::uint64_t>(100 * fraction);
  if (percent == percent_) return;
  percent_ = percent;
  out_ << concat('\r', work_, ' ', progress_bar(fraction, kBarColumns, console_.utf8), ' ', percent, " %")
       << std::flush;
}

}  // namespace keel::cli
