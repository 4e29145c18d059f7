#include "keel/dist/lab/sizes.h"

#include <charconv>
#include <cmath>

#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

constexpr std::string_view kUnits = "KMGT";
constexpr double kLargest = 0x1p50;

constexpr std::int64_t kMostSteps = 1'000'000;

void check_ends(std::int64_t begin, std::int64_t end) {
  KEEL_CHECK(begin <= end, "the smallest size, ", size_text(begin), ", is larger than the largest, ", size_text(end));
}

}  // namespace

std::int64_t parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view rest = error == std::errc{} ? text.substr(static_cast<std::size_t>(end - text.data())) : "?";
  double unit = 1;
  if (!rest.empty()) {
    const char letter = rest[0] >= 'a' && rest[0] <= 'z' ? static_cast<char>(rest[0] - 'a' + 'A') : rest[0];
    if (const std::size_t power = kUnits.find(letter); power != std::string_view::npos) {
      unit = std::exp2(10 * static_cast<double>(power + 1));
      rest.remove_prefix(1);
    }
  }
  const bool has_end = rest.empty() || rest == "B" || rest == "b" || (unit > 1 && rest == "iB");
  const double bytes = number * unit;
  KEEL_CHECK(has_end && std::isfinite(bytes) && bytes >= 0 && bytes <= kLargest && bytes == std::floor(bytes), "'",
             text.substr(0, 60), "' is no size: write bytes, as in 8, 64K, 1.5M or 2G");
  return static_cast<std::int64_t>(bytes);
}

std::string size_text(std::int64_t bytes) {
  std::string unit;
  for (std::size_t power = 0; bytes != 0 && bytes % 1024 == 0 && power < kUnits.size(); ++power) {
    bytes /= 1024;
    unit = kUnits[power];
  }
  return concat(bytes, unit);
}

std::vector<std::int64_t> size_steps(std::int64_t begin, std::int64_t end, std::int64_t step) {
  check_ends(begin, end);
  KEEL_CHECK(step > 0 && (end - begin) / step < kMostSteps, "from ", size_text(begin), " to ", size_text(end),
             " a step needs a size above 0 and ", kMostSteps, " steps at most, got ", size_text(step));
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = begin; size <= end; size += step) sizes.push_back(size);
  return sizes;
}

std::vector<std::int64_t> size_sweep(std::int64_t begin, std::int64_t end, double factor) {
  check_ends(begin, end);
  KEEL_CHECK(std::isfinite(factor) && factor > 1, "sizes grow by a factor above 1, got ", factor);
  std::vector<std::int64_t> sizes = {begin};
  while (begin != 0) {
    const double next = std::max(static_cast<double>(sizes.back()) * factor, static_cast<double>(sizes.back()) + 1);
    if (next > static_cast<double>(end)) break;
    sizes.push_back(static_cast<std::int64_t>(next));
  }
  return sizes;
}

}  // namespace keel::lab
