#pragma once
// A task that a small model learns in seconds: adding two numbers of a few digits, digit by digit.
//
// An example of three digits is "347+586=3390\n": every number has a fixed width, and the sum is written with its
// last digit first, so that each digit follows from those already there and a carry.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/examples.h"
#include "keel/tokenizers/plain_tokenizers.h"

namespace keel {

struct Addends {
  std::int64_t first = 0;
  std::int64_t second = 0;
  bool operator==(const Addends&) const = default;
};

class AdditionTask {
 public:
  // `digits` of each addend, 1 to 9.
  explicit AdditionTask(int digits = 3);

  int digits() const { return digits_; }
  // Inputs of an example: everything but the last newline.
  std::int64_t block() const { return 3 * digits_ + 3; }
  // Characters "\n+0123456789=".
  const std::shared_ptr<const CharacterTokenizer>& tokenizer() const { return tokenizer_; }

  // One pair in eleven is held out: chosen by a hash of the two numbers, the same in either order, whatever the seed.
  static bool held_out(const Addends& pair);
  // A pair that is not held out, drawn uniformly: a pure function of its arguments.
  Addends training_pair(std::uint64_t seed, std::int64_t step, std::int64_t row) const;
  // The first `count` held-out pairs, all different, of an order that never changes; fewer where there are no more.
  std::vector<Addends> held_out_pairs(std::int64_t count) const;

  std::string prompt(const Addends& pair) const;  // "347+586="
  std::string answer(const Addends& pair) const;  // "3390\n"
  // Reads "347+586=" or " 47 + 5 ": numbers of at most digits() digits. Anything else is an Error with an example.
  Addends parse_prompt(std::string_view text) const;
  // The sum that a model wrote: its reversed digits up to a newline or the end. Empty when they are no answer.
  std::optional<std::int64_t> parse_answer(std::string_view text) const;

  // Prompt and answer; the answer alone is learnt.
  TokenExample example(const Addends& pair) const;
  // Endless batches of `rows` training pairs.
  ExampleLoader training_loader(const Context& context, std::int64_t rows, std::uint64_t seed) const;
  // The first `count` held-out pairs, once each.
  ExampleLoader held_out_loader(const Context& context, std::int64_t rows, std::int64_t count) const;

 private:
  int digits_;
  std::int64_t limit_;  // addends are smaller: 10^digits
  std::shared_ptr<const CharacterTokenizer> tokenizer_;
};

}  // namespace keel
