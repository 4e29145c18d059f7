#pragma once
// What the checks of the strand "numbers" share: matrices, derivatives by differences, mistakes told by their
// numbers.

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "learn/behind/check.h"
#include "learn/given/matrix.h"

namespace learn {

// The derivative of f at x by differences of fourth order, for an f of double precision that is smooth over 2
// `step`.
template <class F>
double slope(const F& f, double x, double step = 1e-3) {
  return (8 * (f(x + step) - f(x - step)) - (f(x + 2 * step) - f(x - 2 * step))) / (12 * step);
}

// The derivatives of `loss`, which reads `numbers`, with respect to each of them.
inline std::vector<double> slopes(std::vector<double>& numbers, const std::function<double()>& loss,
                                  double step = 1e-3) {
  std::vector<double> found;
  for (double& number : numbers) {
    const double kept = number;
    found.push_back(slope(
        [&](double moved) {
          number = moved;
          return loss();
        },
        kept, step));
    number = kept;
  }
  return found;
}

inline std::vector<double> wide(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

inline InMatrix matrix(const std::vector<float>& numbers, std::int64_t columns, Turns* turns = nullptr) {
  return {numbers.data(), static_cast<std::int64_t>(numbers.size()) / columns, columns, turns};
}

// A matrix that the exercise writes.
class WrittenMatrix {
 public:
  WrittenMatrix(std::int64_t rows, std::int64_t columns)
      : numbers_(rows * columns), rows_(rows), columns_(columns) {}
  // All of it is `value` at first.
  WrittenMatrix(std::int64_t rows, std::int64_t columns, float value) : WrittenMatrix(rows, columns) {
    const Out all = numbers_;
    std::ranges::fill(all, value);
  }
  operator OutMatrix() { return {Out(numbers_).data(), rows_, columns_}; }
  std::span<const float> read() const { return numbers_.read(); }
  std::int64_t columns() const { return columns_; }
  void expect_whole(std::string_view name) const { numbers_.expect_whole(name); }

 private:
  Written numbers_;
  std::int64_t rows_, columns_;
};

// What a mistake gives instead, and what to say of it.
struct Mistake {
  std::vector<double> gives;
  std::string why;
};

// Ends the law where numbers are further apart than expect_near() allows, and says which mistake gives them.
// They are "dx[3]", or with columns "dx[1][0]". `given` says of what.
inline void expect_numbers(std::string_view name, std::int64_t columns, std::span<const float> got,
                           const std::vector<double>& expected, double tolerance, std::string_view given,
                           const std::vector<Mistake>& mistakes = {}) {
  const std::int64_t i = first_apart(got, expected, tolerance);
  if (i < 0) return;
  const std::string place =
      columns > 0 ? fmt::format("[{}][{}]", i / columns, i % columns) : fmt::format("[{}]", i);
  const auto at = static_cast<std::size_t>(i);
  std::string what = fmt::format("{}{} is {}, and {:.8g} was expected{}{}.", name, place, shown(got[at]),
                                 expected[at], given.empty() ? "" : ": ", given);
  for (const Mistake& mistake : mistakes)
    if (first_apart(got, mistake.gives, tolerance) < 0) {
      what += "\n" + mistake.why;
      break;
    }
  wrong(what);
}

}  // namespace learn
