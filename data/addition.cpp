#include "keel/data/addition.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "keel/data/draws.h"
#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel {
namespace {

constexpr std::uint64_t kHeldOutModulus = 11;
constexpr std::int64_t kLargestLimit = 1'000'000'000;
constexpr std::u32string_view kCharacters = U"\n+0123456789=";
// The order of the held-out pairs is part of the task, so it has a seed of its own.
constexpr std::uint64_t kHeldOutSeed = 0x6b65656c;

std::string padded(std::int64_t number, int width) {
  std::string text = std::to_string(number);
  return text.insert(0, static_cast<std::size_t>(std::max(0, width - static_cast<int>(text.size()))), '0');
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::int64_t number_of(std::string_view digits) {
  std::int64_t value = 0;
  for (const char digit : digits) value = 10 * value + (digit - '0');
  return value;
}

}  // namespace

AdditionTask::AdditionTask(int digits)
    : digits_(digits), limit_(1), tokenizer_(std::make_shared<CharacterTokenizer>(std::u32string(kCharacters))) {
  KEEL_CHECK(digits >= 1 && digits <= 9, "addition is of numbers of 1 to 9 digits, not ", digits);
  for (int i = 0; i < digits; ++i) limit_ *= 10;
}

bool AdditionTask::held_out(const Addends& pair) {
  const auto [low, high] = std::minmax(pair.first, pair.second);
  return mix64(static_cast<std::uint64_t>(low * kLargestLimit + high)) % kHeldOutModulus == 0;
}

Addends AdditionTask::training_pair(std::uint64_t seed, std::int64_t step, std::int64_t row) const {
  const PhiloxKey key = key_of(seed, "addition");
  for (std::uint32_t attempt = 0;; ++attempt) {
    const std::int64_t drawn = draw_below(limit_ * limit_, key, step, row, attempt);
    const Addends pair = {drawn / limit_, drawn % limit_};
    if (!held_out(pair)) return pair;
  }
}

std::vector<Addends> AdditionTask::held_out_pairs(std::int64_t count) const {
  const RandomOrder order(static_cast<std::uint64_t>(limit_ * limit_), kHeldOutSeed, 0);
  std::vector<Addends> pairs;
  for (std::int64_t i = 0; i < limit_ * limit_ && static_cast<std::int64_t>(pairs.size()) < count; ++i) {
    const auto place = static_cast<std::int64_t>(order[static_cast<std::uint64_t>(i)]);
    const Addends pair = {place / limit_, place % limit_};
    if (held_out(pair)) pairs.push_back(pair);
  }
  return pairs;
}

std::string AdditionTask::prompt(const Addends& pair) const {
  KEEL_CHECK(std::min(pair.first, pair.second) >= 0 && std::max(pair.first, pair.second) < limit_, pair.first, " and ",
             pair.second, " are not both numbers of at most ", digits_, " digits");
  return padded(pair.first, digits_) + "+" + padded(pair.second, digits_) + "=";
}

std::string AdditionTask::answer(const Addends& pair) const {
  const std::string sum = padded(pair.first + pair.second, digits_ + 1);
  return std::string(sum.rbegin(), sum.rend()) + "\n";
}

Addends AdditionTask::parse_prompt(std::string_view text) const {
  std::string compact;
  std::copy_if(text.begin(), text.end(), std::back_inserter(compact), [](char c) { return c != ' '; });
  if (compact.ends_with('=')) compact.pop_back();
  const std::size_t plus = compact.find('+');
  const auto number = [&](std::string_view part) {
    const bool fits = !part.empty() && part.size() <= static_cast<std::size_t>(digits_);
    KEEL_CHECK(fits && std::all_of(part.begin(), part.end(), is_digit), "'", text,
               "' is not a sum of two numbers of at most ", digits_, " digits, such as ", prompt({limit_ / 3, 7}));
    return number_of(part);
  };
  const std::string_view all = compact;
  return {number(all.substr(0, plus)), number(plus == std::string_view::npos ? "" : all.substr(plus + 1))};
}

std::optional<std::int64_t> AdditionTask::parse_answer(std::string_view text) const {
  std::string digits(text.substr(0, text.find('\n')));
  if (digits.size() != static_cast<std::size_t>(digits_) + 1) return std::nullopt;
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  std::reverse(digits.begin(), digits.end());
  return number_of(digits);
}

TokenExample AdditionTask::example(const Addends& pair) const {
  const std::string question = prompt(pair);
  const std::vector<std::uint32_t> tokens = tokenizer_->encode(question + answer(pair));
  TokenExample example = {{tokens.begin(), tokens.end()}, std::vector<std::uint8_t>(tokens.size(), 1)};
  std::fill_n(example.learnt.begin(), question.size(), std::uint8_t{0});
  return example;
}

ExampleLoader AdditionTask::training_loader(const Context& context, std::int64_t rows, std::uint64_t seed) const {
  const auto source = [task = *this, seed](std::int64_t step, std::int64_t row) {
    return task.example(task.training_pair(seed, step, row));
  };
  return ExampleLoader(context, source, {.rows = rows, .block = block()});
}

ExampleLoader AdditionTask::held_out_loader(const Context& context, std::int64_t rows, std::int64_t count) const {
  std::vector<Addends> pairs = held_out_pairs(count);
  const auto available = static_cast<std::int64_t>(pairs.size());
  KEEL_CHECK(available > 0, "there are no held-out pairs of ", digits_, "-digit numbers among the first ", count);
  const auto source = [task = *this, pairs = std::move(pairs), rows](std::int64_t step, std::int64_t row) {
    return task.example(pairs[static_cast<std::size_t>(step * rows + row)]);
  };
  return ExampleLoader(context, source, {.rows = rows, .block = block(), .count = available});
}

}  // namespace keel
