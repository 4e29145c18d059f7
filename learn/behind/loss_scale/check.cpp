#include <algorithm>
#include <limits>

#include "learn/behind/ranks.h"
#include "learn/given/loss_scale.h"

std::unique_ptr<learn::LossScale> make_loss_scale(float first, int interval);

namespace {

using Floats = std::vector<float>;
using Bad = std::vector<std::pair<int, float>>;  // a rank, and what is among its gradients

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What the text says, for all ranks at once.
struct Reference {
  float scale;
  int interval, taken = 0;
  bool step(bool overflow) {
    if (overflow) {
      scale = std::max(scale / 2, 1.0F);
      taken = 0;
    } else if (++taken == interval) {
      scale = std::min(scale * 2, 16777216.0F);
      taken = 0;
    }
    return !overflow;
  }
};

// One step is one element: which gradients are not finite.
struct Setting {
  int n = 2;
  float first = 1024;
  int interval = 3;
  std::vector<Bad> steps = {};
  int saved_after = -1;  // steps; then a new object goes on
};

std::string text(const Bad& bad) {
  if (bad.empty()) return "all gradients are finite";
  std::string said;
  for (const auto& [rank, value] : bad)
    said += fmt::format("{}rank {} has a gradient {}", said.empty() ? "" : ", ", rank, value);
  return said;
}

std::string_view why_scale(const Setting& s, std::size_t t, float got, float before,
                           const Reference& expected, int taken_before) {
  const bool overflow = !s.steps[t].empty();
  if (s.saved_after >= 0 && static_cast<int>(t) >= s.saved_after)
    return "\nThe run goes on from save() and load() of an earlier step. The scale is right there, but how "
           "many steps were "
           "taken in a row must be kept, too.";
  if (overflow && got == before && expected.scale != before) return "\nIt was not halved.";
  if (got < 1) return "\nIt stays at 1.";
  if (got > 16777216) return "\nIt stays at 2^24.";
  if (!overflow && got == 2 * before)
    return "\nIt grew too early: the steps taken in a row are counted from the last one that was skipped, or "
           "from the "
           "last growth.";
  if (!overflow && got == before && taken_before + 1 == s.interval)
    return "\nIt did not grow with the last of `interval` steps taken in a row.";
  return "";
}

// `scales`: those of rank 0 behind each step.
void follow(const Setting& s) {
  learn::Ranks ranks(s.n);
  ranks.run([&](learn::Group& group) {
    const int r = group.rank();
    auto scaler = make_loss_scale(s.first, s.interval);
    Reference reference{.scale = s.first, .interval = s.interval};
    for (std::size_t t = 0; t < s.steps.size(); ++t) {
      if (static_cast<int>(t) == s.saved_after) {
        const Floats saved = scaler->save();
        scaler = make_loss_scale(s.first, s.interval);
        if (saved.empty()) learn::wrong("save() is empty. What must a run know to go on?");
        scaler->load(saved);
        if (scaler->scale() != reference.scale)
          learn::wrong("The scale was {} before save(), and is {} after load().", reference.scale,
                       scaler->scale());
      }
      const float before = scaler->scale();
      const Floats small = learn::draw(6, 100 * t + static_cast<std::uint64_t>(r));
      Floats gradients = small;
      for (float& g : gradients) g *= before;
      bool own = false;
      for (const auto& [rank, value] : s.steps[t])
        if (rank == r) gradients[4] = value, own = true;
      const int taken_before = reference.taken;
      const std::size_t calls = ranks.calls(r);
      const bool expected = reference.step(!s.steps[t].empty()),
                 got = scaler->unscale(group, learn::row(gradients));
      if (own && static_cast<int>(s.steps[t].size()) < s.n && ranks.calls(r) == calls)
        learn::wrong(
            "In step {} {}. Rank {} returns {} without a call, and the others cannot know. A rank must make "
            "the same calls "
            "as all others, whatever it has found.",
            t, text(s.steps[t]), r, got);
      if (got != expected) {
        std::string_view why;
        if (got && !own) why = "\nIt has to skip with the rank that must: its own gradients do not show it.";
        if (got && std::isnan(s.steps[t][0].second))
          why = "\nNaN is not finite either, and any comparison with it is false.";
        if (got && s.steps[t][0].second < 0) why = "\nThat is not finite either.";
        if (!got && s.steps[t].empty() && t == 0) why = " Nothing is written yet?";
        learn::wrong("In step {} {}. unscale() is {} on rank {}, and {} was expected.{}", t, text(s.steps[t]),
                     got, r, expected, why);
      }
      for (std::size_t i = 0; got && i < gradients.size(); ++i)
        if (std::abs(gradients[i] - small[i]) > 1e-6F)
          learn::wrong("gradients[{}] of the loss times {} is {}; unscale() leaves {}, and {} was expected.",
                       i, before, small[i] * before, gradients[i], small[i]);
      if (scaler->scale() != reference.scale)
        learn::wrong(
            "`interval` is {}. In step {} {}, and {} step{} in a row {} taken before. The scale was {} and "
            "is {} "
            "on rank {}; {} was expected.{}",
            s.interval, t, text(s.steps[t]), taken_before, taken_before == 1 ? "" : "s",
            taken_before == 1 ? "was" : "were", before, scaler->scale(), r, reference.scale,
            why_scale(s, t, scaler->scale(), before, reference, taken_before));
    }
  });
  for (int r = 0; r < s.n; ++r) {
    const std::int64_t one = 8 * (s.n - 1), sent = ranks.bytes(r),
                       steps = static_cast<std::int64_t>(s.steps.size());
    if (sent > one * steps)
      learn::wrong(
          "Rank {} of {} sends {} bytes in {} step{}. Whether some gradient is not finite is one number for "
          "each "
          "rank, which takes {} at most.",
          r, s.n, sent, steps, steps == 1 ? "" : "s", one * steps);
  }
}

std::vector<Bad> random_steps(int n, int count, std::uint64_t seed, float share) {
  std::vector<Bad> steps;
  const Floats drawn = learn::draw(2 * count, seed, 0, 1);
  for (int t = 0; t < count; ++t) {
    const float which = drawn[static_cast<std::size_t>(2 * t)],
                rank = drawn[static_cast<std::size_t>(2 * t + 1)];
    steps.emplace_back();
    if (which >= share) continue;
    const float value = which < share / 3 ? kInfinity : which < share / 2 ? -kInfinity : std::nanf("");
    steps.back().emplace_back(static_cast<int>(rank * static_cast<float>(n)), value);
  }
  return steps;
}

}  // namespace

int main() {
  return learn::run({
      {"finite gradients are divided by the scale, and the step is taken",
       [] {
         follow({.steps = {{}, {}}});
       }},
      {"where all ranks overflow, the step is skipped and the scale halved",
       [] {
         follow({.steps = {{{0, kInfinity}, {1, kInfinity}}, {}}});
       }},
      {"where one rank overflows, all skip the step",
       [] {
         follow({.n = 4, .steps = {{{2, kInfinity}}, {}, {{0, kInfinity}}, {{3, kInfinity}}}});
       }},
      {"-inf and NaN are not finite",
       [] {
         follow({.steps = {{{0, -kInfinity}}, {{1, std::nanf("")}}}});
       }},
      {"the scale grows after `interval` steps in a row",
       [] {
         follow({.steps = std::vector<Bad>(10)});
         follow({.interval = 1, .steps = std::vector<Bad>(4)});
       }},
      {"a skipped step ends the row",
       [] {
         follow({.steps = {{}, {}, {{1, kInfinity}}, {}, {}, {}, {}, {}, {}}});
       }},
      {"the scale stays between 1 and 2^24",
       [] {
         follow(
             {.first = 4,
              .steps = {{{0, kInfinity}}, {{1, kInfinity}}, {{0, kInfinity}}, {{1, kInfinity}}, {}, {}, {}}});
         follow({.first = 4194304, .interval = 1, .steps = std::vector<Bad>(5)});
       }},
      {"a run that goes on from a checkpoint has the same scales",
       [] {
         for (const int after : {1, 2, 4, 5})
           follow({.steps = {{}, {}, {{0, kInfinity}}, {}, {}, {}, {}, {}}, .saved_after = after});
       }},
      {"ranks never differ",
       [] {
         for (const int n : {1, 3, 4})
           for (std::uint64_t seed = 1; seed <= 5; ++seed)
             follow({.n = n, .interval = 4, .steps = random_steps(n, 60, seed, 0.2F), .saved_after = 30});
       }},
  });
}
