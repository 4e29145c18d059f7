#include <bit>
#include <limits>
#include <tuple>

#include "learn/behind/numbers.h"
#include "learn/given/adamw.h"

std::uint16_t to_bf16(float x);
void update(const learn::AdamW& adamw, int step, learn::In gradient, learn::Parameters parameters);

namespace {

using Numbers = std::vector<double>;

float value_of(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// The nearest bf16 by distances of double precision, for an x that is finite.
std::uint16_t nearest(float x) {
  const auto down = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);  // towards 0
  const auto up = static_cast<std::uint16_t>(down + 1);
  const double past = std::isinf(value_of(up)) ? std::copysign(0x1p128, double{x}) : double{value_of(up)};
  const double below = std::abs(double{x} - value_of(down)), above = std::abs(past - double{x});
  if (below == above) return down % 2 == 0 ? down : up;
  return below < above ? down : up;
}

void expect_rounded(float x) {
  const std::uint16_t got = to_bf16(x), expected = nearest(x);
  if (got == expected) return;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  std::string what = fmt::format(
      "to_bf16({:.9g}), of the bits 0x{:08x}, is 0x{:04x} = {:.9g}, and 0x{:04x} = {:.9g} was expected.", x,
      bits, got, value_of(got), expected, value_of(expected));
  const std::uint32_t lower = bits & 0xffff;
  if (got == bits >> 16)
    what += lower == 0x8000
                ? "\nHalfway between two, the one whose last bit is 0 is asked for, here the larger one."
                : "\nThat cuts the lower half off, and so rounds towards 0.";
  else if (lower == 0x8000)
    what +=
        "\nHalfway between two, the one whose last bit is 0 is asked for. Always to the larger one would "
        "move all sums away from 0.";
  else if (got == static_cast<std::uint16_t>(lower))
    what += "\nThat is the lower half of the bits. bf16 is the upper one.";
  learn::wrong(what);
}

void rounds_exact_ones() {
  for (const float x : {1.0F, 0.5F, -2.0F, 0.0F, 1.5F, -0.0078125F, 1.9921875F}) {
    const std::uint16_t got = to_bf16(x), expected = nearest(x);
    if (got == 0 && expected != 0 && to_bf16(-x * 3) == 0)
      learn::wrong(
          "to_bf16({}) is 0, as every number so far. {} is a bf16 itself, so the upper half of its bits, "
          "0x{:04x}, was expected.",
          x, x, expected);
    expect_rounded(x);
  }
}

void rounds_to_nearest() {
  for (const float x : {1.001F, 1.007F, 3.14159265F, -0.1F, 0.9999F, 1e-20F, -123456.0F, 65535.0F})
    expect_rounded(x);
  for (const float x : learn::draw(2000, 1, -3, 3)) expect_rounded(x);
}

void rounds_halves_to_even() {
  for (std::uint32_t upper = 0x3f70; upper < 0x3f90; ++upper)
    for (const std::uint32_t sign : {0U, 0x80000000U}) expect_rounded(from_bits(sign | upper << 16 | 0x8000));
  for (const std::uint32_t lower : {0x7fffU, 0x8001U, 0x0001U, 0xffffU})
    for (const std::uint32_t upper : {0x3f80U, 0x3f81U, 0xbf7fU})
      expect_rounded(from_bits(upper << 16 | lower));
}

void keeps_what_is_no_number() {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity})
    if (const std::uint16_t got = to_bf16(x); value_of(got) != x)
      learn::wrong("to_bf16({}) is 0x{:04x} = {}.", x, got, value_of(got));
  for (const std::uint32_t bits :
       {0x7fc00000U, 0x7f800001U, 0x7fffffffU, 0xffffffffU, 0xff800100U, 0xffffc000U}) {
    const std::uint16_t got = to_bf16(from_bits(bits));
    if (std::isnan(value_of(got))) continue;
    learn::wrong(
        "The float of the bits 0x{:08x} is NaN, and to_bf16() of it is 0x{:04x} = {}. A loss that is no "
        "number has to stay visible.\nWhere only lower bits of the mantissa are set, the cut leaves an "
        "infinite number. Where all are set, what is added carries into the exponent and into the sign.",
        bits, got, value_of(got));
  }
  expect_rounded(std::numeric_limits<float>::max());
  expect_rounded(-std::numeric_limits<float>::max());
  for (const std::uint32_t bits :
       {0x7f7f7fffU, 0x7f7f8000U, 0x00000001U, 0x00008000U, 0x80018000U, 0x007fffffU})
    expect_rounded(from_bits(bits));
}

// What steps are made of.
struct Ways {
  bool corrects = true, keeps_corrected = false, decoupled = true, masters = true, squares = true,
       decays = true;
};

struct State {
  Numbers master, m, v;
};

State start(const std::vector<float>& weights) {
  return {learn::wide(weights), Numbers(weights.size()), Numbers(weights.size())};
}

void step_by_formula(const learn::AdamW& a, int step, const std::vector<float>& gradient, State& state,
                     const Ways& ways = {}) {
  const double bias1 = ways.corrects ? 1 - std::pow(double{a.beta1}, step) : 1;
  const double bias2 = ways.corrects ? 1 - std::pow(double{a.beta2}, step) : 1;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    double &w = state.master[i], &m = state.m[i], &v = state.v[i];
    if (!ways.masters) w = value_of(nearest(static_cast<float>(w)));
    const double g = gradient[i] + (ways.decoupled ? 0 : a.decay * w);
    m = a.beta1 * m + (1 - double{a.beta1}) * g;
    v = a.beta2 * v + (1 - double{a.beta2}) * (ways.squares ? g * g : std::abs(g));
    const double direction = m / bias1 / (std::sqrt(v / bias2) + a.epsilon);
    if (ways.keeps_corrected) m /= bias1, v /= bias2;
    w -= a.rate * (direction + (ways.decoupled && ways.decays ? a.decay * w : 0));
  }
}

const std::pair<Ways, const char*> kMistakes[] = {
    {{.corrects = false},
     "That is the step without the correction of the bias. m and v begin at 0, so after one step they are 1 "
     "- beta of what they average: divide them by 1 - beta^step."},
    {{.decoupled = false},
     "So it is if decay is added to the gradient, as Adam has it. There it is divided by sqrt(v'), too. In "
     "AdamW decay moves the master beside that."},
    {{.decays = false}, "The term decay master is missing."},
    {{.squares = false}, "So it is if v averages |gradient| in place of gradient^2."},
    {{.keeps_corrected = true},
     "So it is if m and v keep their correction, and the next step corrects them again. m' and v' are used "
     "in this step alone; m and v are kept without it."},
    {{.masters = false},
     "So it is if each step begins with the bf16 weight. It has lost what the master keeps."},
};

// Steps of the exercise, whose masters begin with `weights`.
class Run {
 public:
  Run(const std::vector<float>& weights, const learn::AdamW& adamw)
      : adamw_(adamw), given_(weights), master_(weights), m_(weights.size()), v_(weights.size()) {
    for (const float w : weights) weight_.push_back(nearest(w));
  }
  void step(const std::vector<float>& gradient) {
    gradients_.push_back(gradient);
    update(adamw_, static_cast<int>(gradients_.size()), learn::in(gradient),
           {{weight_.data(), size()}, {master_.data(), size()}, {m_.data(), size()}, {v_.data(), size()}});
  }
  // Looks at all that the steps so far have left.
  void expect(std::string_view given) const {
    const State wanted = by_formula({});
    std::vector<learn::Mistake> of_master, of_m, of_v;
    for (const auto& [ways, why] : kMistakes) {
      const State gives = by_formula(ways);
      of_master.push_back({gives.master, why});
      of_m.push_back({gives.m, why});
      of_v.push_back({gives.v, why});
    }
    if (master_ == given_ && m_ == std::vector<float>(m_.size()))
      learn::wrong("update() has changed neither m nor master yet.");
    learn::expect_numbers("m", 0, m_, wanted.m, 2e-6, given, of_m);
    learn::expect_numbers("v", 0, v_, wanted.v, 2e-6, given, of_v);
    learn::expect_numbers("master", 0, master_, wanted.master, 2e-6, given, of_master);
    for (std::size_t i = 0; i < weight_.size(); ++i)
      if (weight_[i] != nearest(master_[i]))
        learn::wrong("weight[{}] is {}, and its master is {}: to_bf16() of that, {}, was expected ({}).", i,
                     value_of(weight_[i]), master_[i], value_of(nearest(master_[i])), given);
  }
  float weight(std::size_t i) const { return value_of(weight_[i]); }
  float master(std::size_t i) const { return master_[i]; }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(given_.size()); }
  State by_formula(const Ways& ways) const {
    State state = start(given_);
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      step_by_formula(adamw_, static_cast<int>(i) + 1, gradients_[i], state, ways);
    return state;
  }

  learn::AdamW adamw_;
  std::vector<float> given_, master_, m_, v_;
  std::vector<std::uint16_t> weight_;
  std::vector<std::vector<float>> gradients_;
};

void first_step() {
  Run run({1, -1, 0.5F, 2}, {.rate = 0.01F});
  run.step({0.3F, 0.3F, -20, 0.001F});
  run.expect("after the first step of rate 0.01, of gradients (0.3, 0.3, -20, 0.001)");
}

void decays_beside() {
  Run run({1, -2, 0.5F}, {.rate = 0.1F, .decay = 0.5F});
  run.step({0.2F, 0, -0.4F});
  run.expect(
      "after the first step of rate 0.1 and decay 0.5, of masters (1, -2, 0.5) and gradients (0.2, 0, -0.4)");
}

void many_steps() {
  Run run(learn::draw(33, 2), {.rate = 0.01F, .beta1 = 0.8F, .beta2 = 0.95F, .decay = 0.1F});
  for (int step = 1; step <= 12; ++step) {
    run.step(learn::draw(33, static_cast<std::uint64_t>(100 + step)));
    run.expect(fmt::format("after {} steps of rate 0.01", step));
  }
}

void small_updates_add_up() {
  Run run({1, -0.75F}, {.rate = 1e-4F});
  for (int step = 1; step <= 100; ++step) run.step({0.5F, -0.25F});
  for (const auto& [i, begin, end] : {std::tuple(0, 1.0F, 0.99F), std::tuple(1, -0.75F, -0.74F)}) {
    const auto at = static_cast<std::size_t>(i);
    if (std::abs(run.master(at) - end) > 1e-4F || run.weight(at) != value_of(nearest(end)))
      learn::wrong(
          "100 steps move a weight of {} by about 0.0001 each. After them its master is {} and its weight "
          "{}, and about {} and {} were expected.{}",
          begin, run.master(at), run.weight(at), end, value_of(nearest(end)),
          run.weight(at) == begin ? "\nThe neighbours of a bf16 near 1 are 1/256 apart, or 1/128. A step of "
                                    "0.0001 is less than half of that, so a bf16 alone does not keep it: "
                                    "each step must begin with the master, and leave it unrounded."
                                  : "");
  }
}

}  // namespace

int main() {
  return learn::run({
      {"a float that is a bf16 is its upper half", rounds_exact_ones},
      {"other floats become the nearest bf16", rounds_to_nearest},
      {"halfway between two the even one is taken", rounds_halves_to_even},
      {"NaN, infinite numbers and the ends of the range come through", keeps_what_is_no_number},
      {"the first step moves each master by the rate, whatever its gradient's size", first_step},
      {"100 steps that are too small for a bf16 add up", small_updates_add_up},
      {"weights decay beside the gradient's step", decays_beside},
      {"twelve steps are those of the formula", many_steps},
  });
}
