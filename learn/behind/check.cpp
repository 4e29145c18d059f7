#include "learn/behind/check.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <random>

#include "learn/given/matrix.h"

namespace learn {
namespace {

// A NaN that arithmetic does not make of other numbers: what holds it was never written.
constexpr std::uint32_t kUnwritten = 0x7fcabade;

// A law that does not hold.
struct Wrong {
  std::string what;
};

// Lines of WORD and text, written at once, since the next line of the exercise may end the program.
class Report {
 public:
  Report() {
    if (const char* fd = std::getenv("LEARN_REPORT")) fd_ = std::atoi(fd);
  }
  bool asked_for() const { return fd_ >= 0; }
  void line(std::string_view word, std::string_view text) const {
    if (!asked_for()) return;
    std::string escaped(word);
    escaped += '\t';
    for (const char c : text)
      escaped += c == '\n' ? std::string("\\n") : c == '\\' ? "\\\\" : std::string(1, c);
    escaped += '\n';
    const char* rest = escaped.data();
    for (std::size_t left = escaped.size(); left > 0;) {
      const ssize_t n = write(fd_, rest, left);
      if (n <= 0) std::_Exit(3);
      rest += n;
      left -= static_cast<std::size_t>(n);
    }
  }

 private:
  int fd_ = -1;
};

std::string found(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Wrong& fault) { return fault.what; } catch (const std::bad_alloc&) {
    return "It asked for more memory than there is for it.";
  } catch (const std::exception& error) { return error.what(); }
}

}  // namespace

void wrong(const std::string& what) { throw Wrong{what}; }

void explain(const std::vector<Explanation>& explanations, const std::function<void()>& body) {
  try {
    body();
  } catch (const Wrong& fault) {
    for (const Explanation& one : explanations)
      if (fault.what.find(one.part) != std::string::npos) wrong(fault.what + '\n' + one.why);
    throw;
  }
}

void outside(const Index& index, std::int64_t size) {
  const std::string_view path = index.where.file_name();
  wrong("{}:{} uses index {} of a row that has {} numbers; the first is [0] and the last is [{}].",
        path.substr(path.rfind('/') + 1), index.where.line(), index.value, size, size - 1);
}

void outside_rows(const Index& index, std::int64_t rows) {
  const std::string_view path = index.where.file_name();
  wrong("{}:{} uses row {} of a matrix that has {} rows; the first is [0] and the last is [{}].",
        path.substr(path.rfind('/') + 1), index.where.line(), index.value, rows, rows - 1);
}

int run(const std::vector<Law>& laws) {
  const Report report;
  for (const Law& law : laws) report.line("law", law.name);
  for (std::size_t i = 0; i < laws.size(); ++i) {
    report.line("begins", std::to_string(i));
    const std::string what = found(laws[i].body);
    if (!report.asked_for()) {
      std::printf("%s %s\n", what.empty() ? "holds:" : "does not hold:", laws[i].name.c_str());
      if (!what.empty()) std::printf("%s\n", what.c_str());
    }
    if (!what.empty()) {
      report.line("wrong", what);
      report.line("end", "");
      return 1;
    }
    report.line("holds", std::to_string(i));
  }
  report.line("end", "");
  return 0;
}

Written::Written(std::int64_t size)
    : size_(size), numbers_(static_cast<std::size_t>(size + 2 * kMargin), std::bit_cast<float>(kUnwritten)) {}

void Written::expect_whole(std::string_view name) const {
  for (std::int64_t i = 0; i < kMargin; ++i) {
    const auto before = static_cast<std::size_t>(kMargin - 1 - i),
               after = static_cast<std::size_t>(kMargin + size_ + i);
    if (!std::isnan(numbers_[before]))
      wrong("{}[{}] was written, which lies in front of the first number.", name, -1 - i);
    if (!std::isnan(numbers_[after]))
      wrong("{}[{}] was written, and {} has only {} numbers.", name, size_ + i, name, size_);
  }
  if (std::ranges::all_of(read(), [](float x) { return std::bit_cast<std::uint32_t>(x) == kUnwritten; }))
    wrong(
        "Nothing was written to {} yet. It has {} {} for you to compute. (What you add to, as by +=, has to "
        "be set first.)",
        name, size_, size_ == 1 ? "number" : "numbers");
  for (std::int64_t i = 0; i < size_; ++i)
    if (std::isnan((*this)[i]))
      wrong("{}[{}] of {} is NaN: it was never written, or computed from something that is no number.", name,
            i, size_);
}

std::vector<float> draw(std::int64_t count, std::uint64_t seed, double low, double high) {
  std::mt19937_64 engine(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  // By hand: what a standard distribution draws differs between libraries.
  for (float& x : numbers)
    x = static_cast<float>(low + (high - low) * static_cast<double>(engine() >> 11) * 0x1p-53);
  return numbers;
}

std::string shown(float x) { return std::isnan(x) ? "NaN" : fmt::format("{:.8g}", x); }

std::int64_t first_apart(std::span<const float> got, std::span<const double> expected, double tolerance) {
  double largest = 1;
  for (const double e : expected)
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (i >= got.size() || !(std::abs(double{got[i]} - expected[i]) <= tolerance * largest))
      return static_cast<std::int64_t>(i);
  return -1;
}

void expect_near(std::string_view name, std::span<const float> got, std::span<const double> expected,
                 double tolerance, std::string_view why) {
  const std::int64_t i = first_apart(got, expected, tolerance);
  if (i < 0) return;
  const auto at = static_cast<std::size_t>(i);
  wrong("{}[{}] is {}, and {:.8g} was expected.{}{}", name, i, shown(got[at]), expected[at],
        why.empty() ? "" : "\n", why);
}

}  // namespace learn
