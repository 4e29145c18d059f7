#include <algorithm>
#include <cstring>

#include "learn/behind/schedules.h"

namespace learn {
namespace {

using Numbers = std::vector<Number>;

// "rank 2 + 2 times rank 3"
std::string content(const Number& number) {
  std::string said;
  for (std::size_t r = 0; r < number.times.size(); ++r) {
    if (number.times[r] == 0) continue;
    said += said.empty() ? "" : " + ";
    said += number.times[r] == 1 ? fmt::format("rank {}", r)
                                 : fmt::format("{} times rank {}", number.times[r], r);
  }
  return said.empty() ? "nothing" : said;
}

bool complete(const Number& number) {
  return std::all_of(number.times.begin(), number.times.end(), [](int times) { return times == 1; });
}

// Elements that are the sum of all, of one rank.
std::int64_t completed(const Numbers& x) { return std::count_if(x.begin(), x.end(), complete); }

bool adds(const Played& played) {
  for (const keel::Schedule& schedule : played.schedules)
    for (const keel::Step& step : schedule.steps)
      for (const keel::Combination& c : step.combinations)
        if (c.terms.size() > 1) return true;
  return false;
}

std::string_view why_incomplete(const Played& played, std::size_t rank, std::size_t at,
                                std::string_view gather) {
  const Number& number = played.x[rank][at];
  const auto count = static_cast<std::size_t>(played.count), n = static_cast<std::size_t>(played.n);
  if (std::any_of(number.times.begin(), number.times.end(), [](int times) { return times > 1; }))
    return "An x is in it twice: a part is added to a sum that already had it.";
  bool only_rest = count % n != 0 && at >= count / n * n;
  std::int64_t all = 0;
  for (const Numbers& x : played.x) {
    all += completed(x);
    only_rest = only_rest && completed(x) >= static_cast<std::int64_t>(count / n * n);
  }
  if (only_rest)
    return "The parts are count / n long, and nobody takes what is left over at the end: use keel::part(), "
           "or make "
           "some parts longer.";
  if (all == played.count)
    return "Each element is complete on one rank alone. That was the reduce-scatter; the all-gather, which "
           "brings the "
           "complete parts to all, is missing.";
  if (!adds(played))
    return "What came has overwritten what the rank had: receive it into Place::scratch, and add both by a "
           "combination.";
  return gather;
}

}  // namespace

void expect_sums(const Played& played, std::string_view gather) {
  if (played.n > 1 && std::all_of(played.schedules.begin(), played.schedules.end(),
                                  [](const keel::Schedule& s) { return s.steps.empty(); }))
    wrong("With {}, no rank's schedule has a step: nothing is sent yet.", played.all());
  for (std::size_t r = 0; r < played.x.size(); ++r)
    for (std::size_t i = 0; i < played.x[r].size(); ++i) {
      if (played.x[r][i].place != static_cast<std::int64_t>(i))
        wrong(
            "With {}, x[{}] of rank {} ends as what was x[{}]: a part was received into another one's place.",
            played.all(), i, r, played.x[r][i].place);
      if (!complete(played.x[r][i]))
        wrong("With {}, x[{}] of rank {} ends as the sum of: {}. All ranks' x, once each, were expected.\n{}",
              played.all(), i, r, content(played.x[r][i]), why_incomplete(played, r, i, gather));
      double sum = 0;
      for (const Numbers& x : played.before) sum += double{x[i].value};
      if (std::abs(sum - double{played.x[r][i].value}) > 1e-5)
        wrong("With {}, x[{}] of rank {} is {}, and {:.8g} was expected.", played.all(), i, r,
              played.x[r][i].value, sum);
    }
}

void expect_equal_bits(const Played& played, std::string_view why) {
  for (std::size_t r = 1; r < played.x.size(); ++r)
    for (std::size_t i = 0; i < played.x[r].size(); ++i)
      if (std::memcmp(&played.x[0][i].value, &played.x[r][i].value, sizeof(float)) != 0)
        wrong("With {}, x[{}] is {:.9g} on rank 0 and {:.9g} on rank {}.\n{}", played.all(), i,
              played.x[0][i].value, played.x[r][i].value, r, why);
}

void expect_sent(const Played& played, std::int64_t most, std::string_view why) {
  for (std::size_t r = 0; r < played.schedules.size(); ++r) {
    const std::int64_t sent = played.schedules[r].elements_sent();
    if (sent > most)
      wrong("With {}, rank {} sends {} numbers, and {} are enough.\n{}", played.all(), r, sent, most, why);
  }
}

void expect_steps(const Played& played, std::int64_t most, std::string_view why) {
  for (std::size_t r = 0; r < played.schedules.size(); ++r) {
    const auto steps = static_cast<std::int64_t>(played.schedules[r].steps.size());
    if (steps > most)
      wrong("With {}, rank {} has {} steps, and {} are enough.\n{}", played.all(), r, steps, most, why);
  }
}

}  // namespace learn
