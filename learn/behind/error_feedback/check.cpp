#include <algorithm>

#include "learn/behind/check.h"

void compress(learn::In gradient, std::int64_t k, learn::Out residual, learn::Out sent);

namespace {

using Floats = std::vector<float>;

std::string text(std::span<const float> row) {
  std::string said;
  for (const float v : row) said += fmt::format("{}{}", said.empty() ? "" : ", ", v);
  return fmt::format("({})", said);
}

// A rank's compression over several steps, with what was given and sent until now in double precision,
// exactly.
class Steps {
 public:
  explicit Steps(std::size_t size) : residual_(size), given_(size), sent_(size) {}

  Floats step(const Floats& gradient, std::int64_t k) {
    const auto size = static_cast<std::int64_t>(gradient.size());
    learn::Written sent(size);
    const Floats before = residual_;
    ++number_;
    compress(learn::in(gradient), k, {residual_.data(), size}, sent);
    sent.expect_whole("sent");
    check_largest(gradient, before, k, sent.read());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      given_[i] += double{gradient[i]};
      sent_[i] += double{sent.read()[i]};
      if (sent_[i] + double{residual_[i]} != given_[i])
        learn::wrong(
            "In step {}, gradient[{}] is {}, residual[{}] was {}, and k is {}. Now sent[{}] is {} and "
            "residual[{}] "
            "{}. All gradients [{}] until now add up to {}, all that was sent to {}: the residual must be "
            "the "
            "difference, {}.{}",
            number_, i, gradient[i], i, before[i], k, i, sent.read()[i], i, residual_[i], i, given_[i],
            sent_[i], given_[i] - sent_[i],
            why_residual(gradient[i], before[i], sent.read()[i], residual_[i]));
    }
    return {sent.read().begin(), sent.read().end()};
  }
  const Floats& residual() const { return residual_; }
  const std::vector<double>& sent() const { return sent_; }

 private:
  std::string_view why_residual(float gradient, float before, float sent, float after) const {
    if (after == before && sent == 0) return "\nWhat is not sent must be kept: nothing is added to residual.";
    if (after == before + gradient && sent != 0)
      return "\nWhat is sent must leave the residual, or it is sent again and again.";
    if (after == gradient - sent && before != 0)
      return "\nThat is gradient - sent. What the residual had from earlier steps is lost.";
    return "";
  }

  void check_largest(const Floats& gradient, const Floats& before, std::int64_t k,
                     std::span<const float> sent) const {
    const auto size = static_cast<std::int64_t>(gradient.size());
    Floats p(gradient.size());
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = gradient[i] + before[i];
    const auto shown = [&] {
      return size <= 8 ? fmt::format("gradient is {}, residual {}, k {}.", text(gradient), text(before), k)
                       : fmt::format("There are {} numbers, and k is {}.", size, k);
    };
    const auto number = size - std::count(sent.begin(), sent.end(), 0.0F);
    if (number > k)
      learn::wrong("{} sent has {} numbers that are not 0, {}{}", shown(), number,
                   size <= 8 ? fmt::format("{}.", text(sent)) : "and not k at most.",
                   "\nDoes a threshold send all numbers of one magnitude? Choose k indices instead.");
    float smallest = std::numeric_limits<float>::infinity(), largest = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (sent[i] == 0) {
        largest = std::max(largest, std::abs(p[i]));
        continue;
      }
      smallest = std::min(smallest, std::abs(p[i]));
      if (sent[i] == p[i]) continue;
      learn::wrong("In step {}, {} sent[{}] is {}, and gradient + residual is {} there.{}", number_, shown(),
                   i, sent[i], p[i],
                   sent[i] == gradient[i] ? "\nThe residual of earlier steps was left out." : "");
    }
    const auto want = std::min(k, size - std::count(p.begin(), p.end(), 0.0F));
    if (number < want)
      learn::wrong("In step {}, {} sent has {} numbers that are not 0, and {} were expected.{}", number_,
                   shown(), number, want, number == 0 ? " Nothing was sent." : by_gradient(gradient, sent));
    if (largest > smallest || (number == 0 && want > 0))
      learn::wrong("In step {}, {} A number of magnitude {} is sent, and one of {} is not.{}", number_,
                   shown(), smallest, largest,
                   largest_is_negative(p, sent, largest) ? "\nMagnitude is without sign: -5 is larger than 3."
                                                         : by_gradient(gradient, sent));
  }
  static bool largest_is_negative(const Floats& p, std::span<const float> sent, float largest) {
    for (std::size_t i = 0; i < p.size(); ++i)
      if (sent[i] == 0 && p[i] == -largest) return true;
    return false;
  }
  // Whether the k largest numbers of the gradient alone were chosen.
  static std::string_view by_gradient(const Floats& gradient, std::span<const float> sent) {
    float smallest = std::numeric_limits<float>::infinity(), largest = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (sent[i] == 0) largest = std::max(largest, std::abs(gradient[i]));
      else smallest = std::min(smallest, std::abs(gradient[i]));
    }
    return largest <= smallest
               ? "\nThe k largest are those of gradient + residual, not of the gradient alone."
               : "";
  }

  Floats residual_;
  std::vector<double> given_, sent_;
  int number_ = 0;
};

// Multiples of 1 / 1024 below 4, whose sums are exact in 32 bits.
Floats gradient(std::int64_t size, std::uint64_t seed) {
  Floats row = learn::draw(size, seed, -4, 4);
  for (float& v : row) v = std::round(v * 1024) / 1024;
  return row;
}

void small_ones_move() {
  Steps steps(4);
  for (int t = 0; t < 100; ++t) steps.step({1, 0.125F, 0, -0.0625F}, 1);
  for (const std::size_t i : {1U, 3U})
    if (steps.sent()[i] == 0)
      learn::wrong(
          "gradient is (1, 0.125, 0, -0.0625) in each of 100 steps, and k is 1. Nothing of [{}] was ever "
          "sent.",
          i);
}

// Four ranks find the minimum of sum (x - target)^2 / 2, though each sends one number of ten a step.
void trains() {
  const Floats target = learn::draw(10, 5, -2, 2);
  std::vector<double> x(10);
  std::vector<Steps> ranks(4, Steps(10));
  for (int t = 0; t < 600; ++t) {
    std::vector<double> sum(10);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Floats own(10);
      const Floats noise = gradient(10, static_cast<std::uint64_t>(t) * 4 + r);
      for (std::size_t i = 0; i < 10; ++i)
        own[i] = static_cast<float>(std::round((x[i] - target[i]) * 1024) / 1024) + noise[i] / 64;
      for (float& v : own) v = std::round(v * 1024) / 1024;
      const Floats sent = ranks[r].step(own, 1);
      for (std::size_t i = 0; i < 10; ++i) sum[i] += double{sent[i]};
    }
    for (std::size_t i = 0; i < 10; ++i) x[i] -= 0.02 * sum[i] / 4;
  }
  for (std::size_t i = 0; i < 10; ++i)
    if (std::abs(x[i] - double{target[i]}) > 0.2)
      learn::wrong(
          "Four ranks minimise the sum of (x - target)^2 by compressed gradients, k = 1 of 10. After 600 "
          "steps "
          "x[{}] is {:.3f}, and {:.3f} was expected.",
          i, x[i], target[i]);
}

}  // namespace

int main() {
  return learn::run({
      {"the k largest numbers are sent, and the others stay",
       [] {
         Steps(4).step({0.5F, 3, 1, 2}, 2);
       }},
      {"magnitude has no sign",
       [] {
         Steps(5).step({0.5F, 3, -5, 2, -1}, 2);
       }},
      {"a second step sends what the first kept",
       [] {
         Steps steps(4);
         steps.step({4, 3, 0.5F, 0}, 1);
         steps.step({1, 1, 0.5F, 0}, 1);
         steps.step({0, 0, 0.25F, 0}, 2);
         steps.step({0.5F, 0.25F, 0.25F, 0}, 2);
       }},
      {"what is small in every step is sent one day", small_ones_move},
      {"equal magnitudes: k of them",
       [] {
         Steps(6).step({1, -1, 1, 1, -1, 1}, 3);
       }},
      {"k of 0, of all, and of more than there are",
       [] {
         for (const std::int64_t k : {0, 1, 5, 6, 100}) {
           Steps steps(5);
           for (std::uint64_t t = 0; t < 5; ++t) steps.step(gradient(5, t), k);
         }
         Steps(1).step({2}, 1);
       }},
      {"nothing is lost in 300 steps",
       [] {
         Steps steps(50);
         for (std::uint64_t t = 0; t < 300; ++t) steps.step(gradient(50, 1000 + t), 7);
       }},
      {"four ranks train so", trains},
  });
}
