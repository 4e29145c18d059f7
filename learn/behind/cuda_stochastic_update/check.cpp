#include <algorithm>
#include <bit>

#include "learn/behind/cuda.h"

using learn::bf16;

__global__ void update(learn::Global<bf16> w, learn::Global<const float> gradient, int count, float rate,
                       std::uint64_t seed, std::uint32_t step);

namespace {

struct Shape {
  unsigned blocks, threads;
};
constexpr Shape kUsual{4, 64};

struct Draw {
  std::uint64_t seed;
  std::uint32_t step;
};
constexpr Draw kFirst{5, 1};

// The weights after an update, as floats.
std::vector<float> updated(const std::vector<float>& weights, const std::vector<float>& gradients, float rate,
                           Draw draw = kFirst, Shape shape = kUsual) {
  learn::Array<bf16> w("w", learn::to_bf16(weights));
  learn::Array<float> gradient("gradient", gradients);
  learn::launch("update", update, shape.blocks, shape.threads, w, gradient, static_cast<int>(weights.size()),
                rate, draw.seed, draw.step);
  return learn::to_float(w.read());
}

std::vector<float> all(int count, float x) { return std::vector<float>(static_cast<std::size_t>(count), x); }

float towards_zero(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u); }
float away_from_zero(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) & 0xffff0000u) + 0x10000u);
}

void exact_steps() {
  const std::vector<float> got =
      learn::in_all_orders("w", [] { return updated(all(300, 1), all(300, -1), 0.5F); });
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == 1)
      learn::wrong("w[{}] was 1, its gradient is -1 and the rate 0.5. It is still 1, and 1.5 was expected.",
                   i);
    if (got[i] != 1.5F)
      learn::wrong(
          "w[{}] was 1, its gradient is -1 and the rate 0.5. bf16 has 1.5 exactly, and w[{}] became {}. Its "
          "lower 16 "
          "bits are 0, so nothing may carry into the upper half. Only 16 random bits may be added, of the 32 "
          "that a word "
          "has.",
          i, i, got[i]);
  }
}

void one_of_two_neighbours() {
  const std::vector<float> w = learn::to_float(learn::to_bf16(learn::draw(1000, 23, -2, 2))),
                           g = learn::draw(1000, 24);
  const std::vector<float> got = learn::in_all_orders("w", [&] { return updated(w, g, 0.01F); });
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float exact = w[i] - 0.01F * g[i];
    // A product that is added without rounding in between is as good.
    const float other = std::fma(-0.01F, g[i], w[i]);
    const auto is = [&](float x) { return got[i] == towards_zero(x) || got[i] == away_from_zero(x); };
    if (!is(exact) && !is(other))
      learn::wrong(
          "w[{}] - rate * gradient[{}] is {:.9g}. Its neighbours in bf16 are {:.9g} and {:.9g}, and w[{}] "
          "became "
          "{:.9g}.",
          i, i, exact, towards_zero(exact), away_from_zero(exact), i, got[i]);
  }
}

constexpr int kCount = 4096;

// How many of kCount weights of `from` go to the neighbour away from 0, when the step leads `part` of the way
// there.
double share_away(float from, double part) {
  const float gap = away_from_zero(from) - from;
  const std::vector<float> got = updated(all(kCount, from), all(kCount, -1), static_cast<float>(part) * gap);
  return static_cast<double>(std::count(got.begin(), got.end(), from + gap)) / kCount;
}

void right_on_average() {
  for (const float from : {1.0F, -1.0F, 96.0F})
    for (const double part : {0.75, 0.125, 0.5}) {
      const double share = share_away(from, part), sigma = std::sqrt(part * (1 - part) / kCount);
      if (std::abs(share - part) < 5 * sigma) continue;
      const double high = share_away(from, 0.75), low = share_away(from, 0.125);
      const char* why = "On average a weight must become what the step makes of it.";
      if (high == 1 && low == 0)
        why = "This is rounding to the nearest: small steps vanish, all of them, each time.";
      else if (high == 0 && low == 0) why = "The lower 16 bits were cut off: every weight goes towards 0.";
      else if (std::abs(high - low) < 0.05)
        why = "One way is taken as often as the other way, wherever between them the number lies.";
      else if (std::abs(high - 0.25) < 0.05)
        why = "The two ways have changed places: the nearer neighbour must come more often.";
      learn::wrong(
          "{} weights are {}, and a step leads each {} of the way to the next bf16, away from 0. {:.1f}% "
          "went there, and {:.1f}% were expected.\n{}",
          kCount, from, part, 100 * share, 100 * part, why);
    }
}

// The weights of `from` that moved, one bit each.
std::vector<float> halfway(Draw draw, Shape shape, int count = 1024) {
  return updated(all(count, 1), all(count, -1), 1.0F / 256, draw, shape);
}

void whatever_the_launch() {
  const std::vector<float> usual = learn::in_all_orders("w", [] { return halfway(kFirst, kUsual); });
  for (const Shape shape : {Shape{1, 32}, Shape{16, 64}, Shape{3, 96}, Shape{9, 128}}) {
    const std::vector<float> other = halfway(kFirst, shape);
    for (std::size_t i = 0; i < usual.size(); ++i)
      if (usual[i] != other[i])
        learn::wrong(
            "w[{}] becomes {} in a grid of {} x {} threads, and {} in one of {} x {}. The draw must depend "
            "on the element, which is i, and not on the thread that has it: whoever goes on with a run on "
            "another GPU wants the same weights.",
            i, usual[i], kUsual.blocks, kUsual.threads, other[i], shape.blocks, shape.threads);
  }
}

void independent_draws() {
  const std::vector<float> first = halfway(kFirst, kUsual);
  const auto agree = [&](const std::vector<float>& other, std::size_t shift) {
    int same = 0;
    for (std::size_t i = 0; i + shift < first.size(); ++i) same += first[i + shift] == other[i];
    return static_cast<double>(same) / static_cast<double>(first.size() - shift);
  };
  const auto expect_unrelated = [&](const std::vector<float>& other, std::size_t shift,
                                    std::string_view what) {
    if (std::abs(agree(other, shift) - 0.5) > 0.1)
      learn::wrong("1024 weights go up or down, with one probability as with the other. {}", what);
  };
  expect_unrelated(
      halfway({5, 2}, kUsual), 0,
      "At steps 1 and 2, each goes the same way. The draw must depend on the step: otherwise some weights "
      "always go up, and others never.");
  expect_unrelated(halfway({6, 1}, kUsual), 0,
                   "With seeds 5 and 6, each goes the same way. The draw must depend on the seed.");
  for (const std::size_t shift : {1, 2, 4, 32, 64, 256})
    expect_unrelated(
        first, shift,
        fmt::format("Elements that are {} apart go the same way, or each the other way. The draw must depend "
                    "on the element, i.",
                    shift));
}

}  // namespace

int main() {
  return learn::run({
      {"a step to a number that bf16 has arrives there", exact_steps},
      {"each weight becomes one of the two neighbours of the exact number", one_of_two_neighbours},
      {"the launch makes no difference", whatever_the_launch},
      {"on average, a weight becomes the exact number", right_on_average},
      {"each element, step and seed has a draw of its own", independent_draws},
  });
}
