#include <algorithm>

#include "learn/behind/ranks.h"
#include "learn/given/buckets.h"

std::unique_ptr<learn::Reducer> make_buckets(learn::Group& group, std::vector<learn::Out> gradients,
                                             std::int64_t bytes);

namespace {

using Sizes = std::vector<std::int64_t>;
using Parameters = std::vector<int>;

// Number i of a gradient, as rank r has it. Sums of four are exact.
float value(int step, std::size_t parameter, std::int64_t i, int rank) {
  return static_cast<float>(1000 * static_cast<std::int64_t>(parameter) + i + 50000 * step) +
         0.25F * static_cast<float>(rank);
}

// What a rank reduced with one call.
struct Begun {
  Parameters parameters = {};  // as the packed numbers say
  std::int64_t numbers = 0;
  int arrivals = 0;  // before it, of this step; -1: in finish()
};

struct Outcome {
  std::vector<std::vector<std::vector<Begun>>> begun = {};  // by rank and step
};

std::string text(const Parameters& parameters) {
  std::string said;
  for (const int p : parameters) said += fmt::format("{}{}", said.empty() ? "" : " ", p);
  return fmt::format("({})", said);
}
std::string text(const std::vector<Parameters>& buckets) {
  std::string said;
  for (const Parameters& bucket : buckets) said += fmt::format("{}{}", said.empty() ? "" : " ", text(bucket));
  return said.empty() ? "none" : said;
}

Parameters parameters_in(const std::vector<float>& packed, int step) {
  Parameters found;
  for (const float v : packed) {
    const int p = std::isfinite(v) ? static_cast<int>((v - 50000 * static_cast<float>(step)) / 1000) : -1;
    if (found.empty() || found.back() != p) found.push_back(p);
  }
  return found;
}

Parameters backwards(std::size_t n) {
  Parameters order;
  for (std::size_t p = n; p > 0; --p) order.push_back(static_cast<int>(p) - 1);
  return order;
}

struct Setting {
  int n = 2;
  Sizes sizes = {};
  std::int64_t bytes = 0;
  std::vector<Parameters> orders = {};  // by rank; empty: backwards
  int steps = 1;
};

std::vector<Parameters> planned(const Setting& s) {
  std::vector<Parameters> buckets;
  std::int64_t used = 0;
  for (const int p : backwards(s.sizes.size())) {
    const std::int64_t size = 4 * s.sizes[static_cast<std::size_t>(p)];
    if (buckets.empty() || used + size > s.bytes) {
      buckets.emplace_back();
      used = 0;
    }
    used += size;
    buckets.back().push_back(p);
  }
  return buckets;
}

void expect_gradients(const Setting& s, int step, int rank,
                      const std::vector<std::vector<float>>& gradients) {
  for (std::size_t p = 0; p < gradients.size(); ++p)
    for (std::size_t i = 0; i < gradients[p].size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      float sum = 0;
      for (int r = 0; r < s.n; ++r) sum += value(step, p, at, r);
      const float got = gradients[p][i];
      if (got == sum) continue;
      if (got == value(step, p, at, rank))
        learn::wrong(
            "In step {}, gradients[{}][{}] of rank {} is its own {} after finish(): nothing is added to it "
            "yet. {} "
            "was expected.{}",
            step, p, i, rank, got, sum,
            step > 0 ? "\nThe step before was right. What arrived() counts must begin anew after finish()."
                     : "");
      float sum_before = 0;
      for (int r = 0; r < s.n; ++r) sum_before += value(step - 1, p, at, r);
      std::string_view why;
      if (std::isnan(got)) why = "\nThe result of an all_reduce is not there before wait().";
      if (got == sum_before && step > 0)
        why = "\nThat is the sum of the step before. What arrived() counts must begin anew after finish().";
      learn::wrong("In step {}, gradients[{}][{}] of rank {} is {} after finish(), and {} was expected.{}",
                   step, p, i, rank, got, sum, why);
    }
}

Outcome reduced(const Setting& s) {
  Outcome outcome;
  outcome.begun.assign(static_cast<std::size_t>(s.n),
                       std::vector<std::vector<Begun>>(static_cast<std::size_t>(s.steps)));
  std::vector<int> steps(static_cast<std::size_t>(s.n)), arrivals(static_cast<std::size_t>(s.n));
  learn::Ranks ranks(s.n);
  ranks.on_begin = [&](const learn::Call& call) {
    const auto r = static_cast<std::size_t>(call.rank), step = static_cast<std::size_t>(steps[r]);
    if (call.kind != learn::Kind::all_reduce)
      learn::wrong("Rank {} asks for {}; gradients are reduced by all_reduce.", call.rank, call.text());
    outcome.begun[r][step].push_back({parameters_in(call.given, steps[r]), call.count(), arrivals[r]});
  };
  ranks.on_wait = [&](const learn::Call& call) {
    const int arrived = arrivals[static_cast<std::size_t>(call.rank)];
    if (arrived > 0)
      learn::wrong(
          "Rank {} waits for {} in the arrived() of gradient {} of {}. Backward stands still meanwhile: "
          "begin the "
          "all_reduce there, keep the Work, and wait in finish().",
          call.rank, call.text(), arrived, s.sizes.size());
  };
  ranks.run([&](learn::Group& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    std::vector<std::vector<float>> gradients;
    std::vector<learn::Out> rows;
    for (const std::int64_t size : s.sizes) gradients.emplace_back(static_cast<std::size_t>(size));
    for (auto& gradient : gradients) rows.push_back(learn::row(gradient));
    const auto reducer = make_buckets(group, rows, s.bytes);
    for (int step = 0; step < s.steps; ++step) {
      steps[r] = step, arrivals[r] = 0;
      for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), std::nanf(""));
      for (const int p : s.orders.empty() ? backwards(s.sizes.size()) : s.orders[r]) {
        const auto at = static_cast<std::size_t>(p);
        for (std::size_t i = 0; i < gradients[at].size(); ++i)
          gradients[at][i] = value(step, at, static_cast<std::int64_t>(i), group.rank());
        ++arrivals[r];
        reducer->arrived(p);
      }
      arrivals[r] = -1;
      reducer->finish();
      expect_gradients(s, step, group.rank(), gradients);
    }
  });
  return outcome;
}

void expect_buckets(const Setting& s, const Outcome& outcome) {
  const std::vector<Parameters> plan = planned(s);
  for (std::size_t r = 0; r < outcome.begun.size(); ++r)
    for (const auto& begun : outcome.begun[r]) {
      std::vector<Parameters> buckets;
      for (const Begun& one : begun) buckets.push_back(one.parameters);
      if (buckets == plan) continue;
      std::string_view why;
      if (plan.size() < s.sizes.size() && buckets.size() == s.sizes.size())
        why = "\nThat is a call for each gradient. Small ones share a bucket.";
      else if (!buckets.empty() && buckets.front().front() == 0)
        why =
            "\nBackward ends with parameter 0, so a bucket that has it is complete last. Pack from the last "
            "parameter "
            "to the first.";
      else if (buckets.size() == 1)
        why =
            "\nThat is one bucket of everything, however large, and it is complete when backward has ended.";
      learn::wrong(
          "Gradients have {} numbers, a bucket at most {} bytes. Rank {} reduces the parameters {}, and {} "
          "was "
          "expected.{}",
          fmt::format("{}",
                      [&] {
                        std::string said;
                        for (const std::int64_t size : s.sizes)
                          said += fmt::format("{}{}", said.empty() ? "" : ", ", size);
                        return said;
                      }()),
          s.bytes, r, text(buckets), text(plan), why);
    }
}

// When bucket b of the plan, and all before it, had arrived.
int complete_after(const Parameters& order, const std::vector<Parameters>& plan, std::size_t b) {
  std::size_t last = 0;
  for (std::size_t k = 0; k <= b; ++k)
    for (const int p : plan[k])
      last =
          std::max(last, static_cast<std::size_t>(std::find(order.begin(), order.end(), p) - order.begin()));
  return static_cast<int>(last) + 1;
}

void expect_early(const Setting& s, const Outcome& outcome) {
  const std::vector<Parameters> plan = planned(s);
  for (std::size_t r = 0; r < outcome.begun.size(); ++r)
    for (const auto& begun : outcome.begun[r])
      for (std::size_t b = 0; b < begun.size(); ++b) {
        const Parameters order = s.orders.empty() ? backwards(s.sizes.size()) : s.orders[r];
        const int complete = complete_after(order, plan, b);
        if (begun[b].arrivals == complete) continue;
        std::string_view why =
            "The sizes are known before, so the bucket that is just full need not wait for the gradient that "
            "does not "
            "fit any more.";
        if (begun[b].arrivals < 0) why = "Then backward has ended, and nothing goes on beside it.";
        learn::wrong(
            "Gradients of rank {} arrive as {}. The bucket {} can begin in arrived() number {}, and its "
            "all_reduce began in {}.\n{}",
            r, text(order), text(begun[b].parameters), complete,
            begun[b].arrivals < 0 ? "finish()" : fmt::format("number {}", begun[b].arrivals), why);
      }
}

void expect_same_order(const Setting& s, const Outcome& outcome) {
  for (std::size_t r = 1; r < outcome.begun.size(); ++r)
    for (std::size_t b = 0; b < std::min(outcome.begun[0][0].size(), outcome.begun[r][0].size()); ++b)
      if (outcome.begun[0][0][b].parameters != outcome.begun[r][0][b].parameters)
        learn::wrong(
            "Gradients arrive as {} on rank 0 and as {} on rank {}. With call {} (counted from 0) rank 0 "
            "reduces "
            "the parameters {}, and rank {} {}: ranks add up gradients of different parameters. Buckets "
            "must begin in the same order on all ranks.",
            text(s.orders[0]), text(s.orders[r]), r, b, text(outcome.begun[0][0][b].parameters), r,
            text(outcome.begun[r][0][b].parameters));
}

void other_orders() {
  Setting s{.n = 3, .sizes = {4, 4, 4, 4, 4, 4}, .bytes = 32};
  s.orders = {{5, 4, 3, 2, 1, 0}, {3, 2, 5, 4, 1, 0}, {0, 5, 3, 1, 2, 4}};
  // Mixed-up sums are told by their cause.
  Outcome outcome;
  outcome.begun.assign(3, std::vector<std::vector<Begun>>(1));
  learn::Ranks ranks(3);
  ranks.on_begin = [&](const learn::Call& call) {
    outcome.begun[static_cast<std::size_t>(call.rank)][0].push_back(
        {parameters_in(call.given, 0), call.count(), 0});
  };
  ranks.run([&](learn::Group& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    std::vector<std::vector<float>> gradients(6, std::vector<float>(4));
    std::vector<learn::Out> rows;
    for (auto& gradient : gradients) rows.push_back(learn::row(gradient));
    const auto reducer = make_buckets(group, rows, s.bytes);
    for (const int p : s.orders[r]) {
      const auto at = static_cast<std::size_t>(p);
      for (std::size_t i = 0; i < 4; ++i)
        gradients[at][i] = value(0, at, static_cast<std::int64_t>(i), group.rank());
      reducer->arrived(p);
    }
    reducer->finish();
  });
  expect_same_order(s, outcome);
  expect_early(s, reduced(s));
}

void all(const Setting& s) {
  const Outcome outcome = reduced(s);
  expect_buckets(s, outcome);
  expect_early(s, outcome);
}

}  // namespace

int main() {
  return learn::run({
      {"every gradient becomes the sum of all ranks",
       [] {
         reduced({.n = 2, .sizes = {4, 2, 3}, .bytes = 1000});
       }},
      {"small gradients share a bucket",
       [] {
         const Setting s{.n = 2, .sizes = {10, 10, 10, 10, 10, 10, 10, 10}, .bytes = 120};
         expect_buckets(s, reduced(s));
       }},
      {"a gradient that is larger than a bucket has its own",
       [] {
         const Setting s{.n = 2, .sizes = {3, 2, 50, 4, 5, 1, 1, 30}, .bytes = 40};
         expect_buckets(s, reduced(s));
       }},
      {"a bucket begins as soon as it is complete",
       [] {
         all({.n = 2, .sizes = {10, 10, 10, 10, 10, 10, 10, 10}, .bytes = 120});
       }},
      {"buckets begin in the same order on all ranks", other_orders},
      {"the second step goes as the first",
       [] {
         all({.n = 2, .sizes = {6, 2, 8, 1}, .bytes = 32, .steps = 3});
       }},
      {"other sizes, and one rank alone",
       [] {
         all({.n = 4, .sizes = {1}, .bytes = 4});
         all({.n = 1, .sizes = {3, 9, 2}, .bytes = 1});
         all({.n = 3, .sizes = {7, 1, 1, 1, 30, 2, 5, 16, 16, 16, 3, 3}, .bytes = 64, .steps = 2});
       }},
  });
}
