#include <cstring>

#include "learn/behind/ranks.h"
#include "learn/given/adam.h"

learn::AdamState make_state(std::int64_t count, int n, int rank);
void step(learn::Group& group, learn::Out weights, learn::In gradients, learn::AdamState& state);

void learn::adam(Out weights, In gradients, AdamState& state) {
  const auto m = static_cast<std::int64_t>(state.m.size()), v = static_cast<std::int64_t>(state.v.size());
  if (weights.size() != gradients.size() || weights.size() != m || m != v)
    wrong("adam() gets {} weights, {} gradients, and a state of {} and {} numbers. All must be as many.",
          weights.size(), gradients.size(), m, v);
  ++state.steps;
  const auto t = static_cast<float>(state.steps);
  const float m_share = 1 - std::pow(0.9F, t), v_share = 1 - std::pow(0.999F, t);
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    float &mean = state.m[static_cast<std::size_t>(i)], &square = state.v[static_cast<std::size_t>(i)];
    mean = 0.9F * mean + 0.1F * gradients[i];
    square = 0.999F * square + 0.001F * gradients[i] * gradients[i];
    weights[i] -= 0.01F * (mean / m_share) / (std::sqrt(square / v_share) + 1e-8F);
  }
}

namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<float> gradients_of(std::int64_t count, int t, int rank) {
  return learn::draw(count, static_cast<std::uint64_t>(100 * t + rank));
}

struct Training {
  int n = 1;
  std::int64_t count = 0;
  int steps = 3;
  std::string text() const { return fmt::format("{} weights on {} rank{}", count, n, n == 1 ? "" : "s"); }
};

// Weights after each step of data parallel training. `divisor` of the sum of gradients: n.
Rows data_parallel(const Training& t, float divisor) {
  std::vector<float> weights = learn::draw(t.count, 9);
  const auto size = weights.size();
  learn::AdamState state = {std::vector<float>(size), std::vector<float>(size)};
  Rows after;
  for (int s = 0; s < t.steps; ++s) {
    std::vector<float> mean(size);
    for (int r = 0; r < t.n; ++r) {
      const std::vector<float> own = gradients_of(t.count, s, r);
      for (std::size_t i = 0; i < size; ++i) mean[i] += own[i];
    }
    for (float& g : mean) g /= divisor;
    learn::adam(learn::row(weights), learn::row(mean), state);
    after.push_back(weights);
  }
  return after;
}

struct Trained {
  std::vector<Rows> weights = {};  // by rank, after each step
  std::vector<std::int64_t> bytes = {}, state = {};
};

Trained trained(const Training& t) {
  Trained result{.weights = std::vector<Rows>(static_cast<std::size_t>(t.n)), .state = {}};
  result.state.resize(result.weights.size());
  learn::Ranks ranks(t.n);
  ranks.run([&](learn::Group& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    std::vector<float> weights = learn::draw(t.count, 9);
    learn::AdamState state = make_state(t.count, t.n, group.rank());
    for (int s = 0; s < t.steps; ++s) {
      const std::vector<float> gradients = gradients_of(t.count, s, group.rank());
      step(group, learn::row(weights), learn::row(gradients), state);
      result.weights[r].push_back(weights);
    }
    result.state[r] = static_cast<std::int64_t>(state.m.size() + state.v.size());
  });
  for (int r = 0; r < t.n; ++r) result.bytes.push_back(ranks.bytes(r));
  return result;
}

bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::string_view why_other(const Training& t, std::size_t s, std::size_t r, std::size_t i, float got) {
  const learn::Shard mine = learn::shard(t.count, t.n, static_cast<int>(r));
  const auto at = static_cast<std::int64_t>(i);
  if (std::isnan(got)) return "\nWhat a call brings is not there before wait().";
  const float before =
      s == 0 ? learn::draw(t.count, 9)[i] : data_parallel(t, static_cast<float>(t.n))[s - 1][i];
  if (same(got, before) && (at < mine.begin || at >= mine.end))
    return "\nThat is the weight before the step, and it belongs to another rank's shard. Who brings what "
           "the others "
           "computed?";
  if (same(got, data_parallel(t, 1)[s][i]))
    return "\nThat is the step with the sum of gradients. Their mean is the sum divided by the number of "
           "ranks.";
  return "";
}

Trained expect_same(const Training& t) {
  const Trained result = trained(t);
  const Rows expected = data_parallel(t, static_cast<float>(t.n));
  for (std::size_t s = 0; s < expected.size(); ++s)
    for (std::size_t r = 0; r < result.weights.size(); ++r)
      for (std::size_t i = 0; i < expected[s].size(); ++i) {
        const float got = result.weights[r][s][i];
        if (!same(got, expected[s][i]))
          learn::wrong(
              "With {}, after step {} weights[{}] of rank {} is {:.9g}, and {:.9g} in data parallel "
              "training.{}",
              t.text(), s + 1, i, r, got, expected[s][i], why_other(t, s, r, i, got));
      }
  return result;
}

void holds_a_shard() {
  for (const auto& [n, count] : {std::pair{4, 8}, {2, 6}, {3, 10}, {4, 3}, {1, 5}})
    for (int r = 0; r < n; ++r) {
      const learn::AdamState state = make_state(count, n, r);
      const auto mine = static_cast<std::size_t>(learn::shard(count, n, r).size());
      if (n > 1 && state.m.size() == static_cast<std::size_t>(count))
        learn::wrong(
            "With {} weights, rank {} of {} holds {} numbers of m and {} of v. That is the state of all "
            "weights, as data parallel training has it; the rank's shard has {}.",
            count, r, n, state.m.size(), state.v.size(), mine);
      if (state.m.size() != mine || state.v.size() != mine)
        learn::wrong(
            "With {} weights, rank {} of {} holds {} numbers of m and {} of v, and its shard has {}.{}",
            count, r, n, state.m.size(), state.v.size(), mine,
            state.m.size() == static_cast<std::size_t>(count / n)
                ? "\ncount / n leaves the last count % n weights without a state; learn::shard() shares them "
                  "out."
                : "");
    }
}

void expect_bytes() {
  for (const Training& t : {Training{4, 8}, Training{3, 10}, Training{2, 101}}) {
    const Trained result = expect_same(t);
    for (int r = 0; r < t.n; ++r) {
      const std::int64_t mine = learn::shard(t.count, t.n, r).size(), scatter = 4 * (t.count - mine),
                         gather = 4 * (t.n - 1) * mine,
                         sent = result.bytes[static_cast<std::size_t>(r)] / t.steps;
      if (sent > scatter + gather)
        learn::wrong(
            "With {}, rank {} sends {} bytes a step. A reduce_scatter of the gradients sends {}, and an "
            "all_gather of the weights {}: {} together, as much as an all_reduce.{}",
            t.text(), r, sent, scatter, gather, scatter + gather,
            sent == scatter + 2 * gather
                ? "\nWas the sum of all gradients brought to all ranks, of which each needs its shard alone?"
                : "");
    }
  }
}

}  // namespace

int main() {
  return learn::run({
      {"a rank holds Adam's state for its shard alone", holds_a_shard},
      {"two ranks train as in data parallel training, to the bit",
       [] {
         expect_same({2, 8});
       }},
      {"four ranks too, for several steps",
       [] {
         expect_same({4, 16, 5});
       }},
      {"counts that are no multiple of the ranks",
       [] {
         for (const Training& t : {Training{4, 10}, Training{3, 7}, Training{8, 101}}) expect_same(t);
       }},
      {"more ranks than weights, and one rank alone",
       [] {
         expect_same({4, 3});
         expect_same({1, 5});
       }},
      {"each rank sends what data parallel training sends", expect_bytes},
  });
}
