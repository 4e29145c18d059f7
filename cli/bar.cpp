#include "bar.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

constexpr int kBarColumns = 25;

}  // namespace

Bar::Bar(std::string work) : work_(std::move(work)), console_(console_options(STDERR_FILENO)) {}

Bar::~Bar() {
  if (console_.terminal) std::cerr << "\r\x1b[K" << std::flush;
}

void Bar::show(std::uint64_t done, std::uint64_t total) {
  if (!console_.terminal || total == 0) return;
  const double fraction = static_cast<double>(done) / static_cast<double>(total);
  const auto percent = static_cast<std::uint64_t>(100 * fraction);
  if (percent == percent_) return;
  percent_ = percent;
  std::cerr << concat('\r', work_, ' ', progress_bar(fraction, kBarColumns, console_.utf8), ' ', percent, " %")
            << std::flush;
}

}  // namespace keel::cli
