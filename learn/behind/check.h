#pragma once
// What checks an exercise: laws, tried one after the other until one does not hold.
//
//   int main() { return learn::run({{"a row of probabilities adds up to 1", [] { ... }}, ...}); }
//
// A law calls wrong() with what it found. The program says the same to people and, with LEARN_REPORT=FD, to
// scripts/learn: a law that began without an end is one in which the program ended.

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "learn/given/row.h"

namespace learn {

struct Law {
  std::string name;  // what must hold, as a sentence without its full stop
  std::function<void()> body;
};

// The exit code: 0 where all laws hold. What a body throws is told as what was found.
int run(const std::vector<Law>& laws);

// Ends the law: it does not hold, for this reason. Say what was given, what came and what was expected, then
// what mistake does that.
[[noreturn]] void wrong(const std::string& what);
template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> text, Args&&... args) {
  wrong(fmt::format(text, std::forward<Args>(args)...));
}

// Runs body(). Where it ends the law, and a `part` is in the words, the first such one's `why` follows them.
struct Explanation {
  std::string_view part;
  std::string why;
};
void explain(const std::vector<Explanation>& explanations, const std::function<void()>& body);

// Numbers that the exercise writes. They are full of NaN until then, and have a margin that it must not
// touch.
class Written {
 public:
  explicit Written(std::int64_t size);
  operator Out() { return {numbers_.data() + kMargin, size_}; }
  std::span<const float> read() const { return {numbers_.data() + kMargin, static_cast<std::size_t>(size_)}; }
  float operator[](std::int64_t i) const { return read()[static_cast<std::size_t>(i)]; }
  // Ends the law where a number was not written, or one beside them was; `name` as the exercise calls them.
  void expect_whole(std::string_view name) const;

 private:
  static constexpr std::int64_t kMargin = 16;
  std::int64_t size_;
  std::vector<float> numbers_;
};

// `count` numbers of [low, high), of which `seed` decides.
std::vector<float> draw(std::int64_t count, std::uint64_t seed, double low = -1.0, double high = 1.0);
inline In in(const std::vector<float>& numbers) {
  return {numbers.data(), static_cast<std::int64_t>(numbers.size())};
}

// A number of 8 digits, or "NaN" without a sign.
std::string shown(float x);

// The first place at which two rows are further apart than `tolerance` times the largest expected magnitude
// (or 1, if that is larger); NaN is far from everything. -1: nowhere.
std::int64_t first_apart(std::span<const float> got, std::span<const double> expected, double tolerance);

// Ends the law at the first such place: "`name`[3] is 2, and 1 was expected". `why` follows, if there is one.
void expect_near(std::string_view name, std::span<const float> got, std::span<const double> expected,
                 double tolerance, std::string_view why = {});

}  // namespace learn
