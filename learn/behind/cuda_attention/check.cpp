#include "learn/behind/cuda.h"

__global__ void attention(learn::Global<const float> q, learn::Global<const float> k,
                          learn::Global<const float> v, learn::Global<float> out, int queries, int keys);

namespace {

constexpr int kHead = 16, kTile = 32;

struct Given {
  int queries, keys;
  std::vector<float> q, k, v;
};

// Scores from `low` for the first key to `high` for the last one, more or less.
Given given(int queries, int keys, float low, float high) {
  Given g{queries, keys, learn::draw(queries * kHead, 20, 0.5, 1.5), learn::draw(keys * kHead, 21, 0.9, 1.1),
          learn::draw(keys * kHead, 22)};
  for (int j = 0; j < keys; ++j)
    for (int d = 0; d < kHead; ++d) {
      const float along = keys == 1 ? 0 : static_cast<float>(j) / static_cast<float>(keys - 1);
      g.k[static_cast<std::size_t>(j * kHead + d)] *= (low + (high - low) * along) / 4;
    }
  return g;
}

double score(const Given& g, int i, int j) {
  double dot = 0;
  for (int d = 0; d < kHead; ++d)
    dot +=
        double{g.q[static_cast<std::size_t>(i * kHead + d)]} * g.k[static_cast<std::size_t>(j * kHead + d)];
  return dot / 4;
}

// The output by two passes over all keys. `scale`: of the scores; `empty`: keys more, whose scores and values
// are 0.
std::vector<double> expected(const Given& g, double scale = 1, int empty = 0) {
  std::vector<double> out;
  for (int i = 0; i < g.queries; ++i) {
    double largest = empty > 0 ? 0 : -INFINITY, weights = 0, sum[kHead] = {};
    for (int j = 0; j < g.keys; ++j) largest = std::max(largest, scale * score(g, i, j));
    for (int j = 0; j < g.keys; ++j) {
      const double weight = std::exp(scale * score(g, i, j) - largest);
      weights += weight;
      for (int d = 0; d < kHead; ++d) sum[d] += weight * g.v[static_cast<std::size_t>(j * kHead + d)];
    }
    weights += empty * std::exp(-largest);
    for (const double s : sum) out.push_back(s / weights);
  }
  return out;
}

// The output by one pass in which something does not shrink when the largest score grows; that is looked for
// in `step` keys at a time.
std::vector<double> forgetful(const Given& g, int step, bool shrink_weights, bool shrink_sums) {
  std::vector<double> out;
  for (int i = 0; i < g.queries; ++i) {
    double largest = -INFINITY, weights = 0, sum[kHead] = {};
    for (int j = 0; j < g.keys; ++j) {
      if (j % step == 0) {
        const double before = largest;
        for (int l = j; l < j + step && l < g.keys; ++l) largest = std::max(largest, score(g, i, l));
        const double shrink = std::exp(before - largest);
        if (shrink_weights) weights *= shrink;
        if (shrink_sums)
          for (double& s : sum) s *= shrink;
      }
      const double weight = std::exp(score(g, i, j) - largest);
      weights += weight;
      for (int d = 0; d < kHead; ++d) sum[d] += weight * g.v[static_cast<std::size_t>(j * kHead + d)];
    }
    for (const double s : sum) out.push_back(s / weights);
  }
  return out;
}

std::vector<float> run_attention(const Given& g, bool count = false) {
  const auto blocks = (g.queries + kTile - 1) / kTile;
  return learn::in_all_orders("out", [&] {
    learn::Array<float> q("q", g.q), k("k", g.k), v("v", g.v), out("out", std::int64_t{g.queries} * kHead);
    learn::launch("attention", attention, static_cast<unsigned>(blocks), kTile, q, k, v, out, g.queries,
                  g.keys);
    const std::int64_t enough = blocks * k.size(), reads = std::max(k.counts().reads(), v.counts().reads());
    if (count && reads > enough)
      learn::wrong(
          "k has {} numbers, and {} blocks need each of them: {} reads. k or v is read {} times. {}",
          k.size(), blocks, enough, reads,
          reads <= 2 * enough
              ? "One pass over the keys is enough, if what was added up shrinks when the largest score grows."
              : "Each key must come through a tile in shared memory, once for all queries of the block.");
    return out.read();
  });
}

// Why `got` may be as it is; empty where it is right.
std::string mistake(const Given& g, const std::vector<float>& got, const std::string& otherwise) {
  const auto is = [&](const std::vector<double>& other) { return learn::first_apart(got, other, 2e-5) < 0; };
  if (is(expected(g))) return {};
  const int empty = (g.keys + kTile - 1) / kTile * kTile - g.keys;
  if (is(expected(g, 4))) return "The scores were not divided by sqrt(kHead), which is 4.";
  if (empty > 0 && is(expected(g, 1, empty)))
    return "The last tile is not full, and places of the tile without a key took part: their score is 0, and "
           "exp(0) "
           "counts in the sum of weights.";
  for (const int step : {1, kTile}) {
    if (is(forgetful(g, step, true, false)))
      return "The largest score moved, and the sum of weights was multiplied by exp(before - largest). The "
             "sums of v "
             "must shrink along with the sum of weights.";
    if (is(forgetful(g, step, false, true)))
      return "The largest score moved, and the sums of v were multiplied by exp(before - largest). The sum "
             "of weights "
             "must shrink, too.";
    if (is(forgetful(g, step, false, false)))
      return "The largest score moved, and nothing was multiplied by exp(before - largest): what was added "
             "up before "
             "still has the old one subtracted.";
  }
  return otherwise;
}

void expect_attention(const Given& g, const std::string& otherwise = " ") {
  const std::vector<float> got = run_attention(g);
  const std::string why = mistake(g, got, otherwise);
  if (why.empty()) return;
  const std::vector<double> wanted = expected(g);
  const auto at = static_cast<std::size_t>(learn::first_apart(got, wanted, 2e-5));
  learn::wrong(
      "There are {} queries and {} keys. Number {} of query {} in out is {}, and {:.8g} was "
      "expected.\n{}",
      g.queries, g.keys, at % kHead, at / kHead, std::isnan(got[at]) ? "NaN" : fmt::format("{:.8g}", got[at]),
      wanted[at], why);
}

const char* const kFull =
    "The tile must be full before anybody goes through it: a thread reads what others loaded.";
const char* const kNext =
    "The next tile is loaded while a thread still goes through this one: another barrier belongs after the "
    "last key.";
const char* const kStay =
    "The last block has fewer queries than threads. A thread without a query still loads for the others, and "
    "stays for "
    "the barriers.";
const char* const kOutside =
    "The last block has fewer queries than threads, and the last tile fewer keys than rows. What does not "
    "exist must not be read.";
const char* const kOverflow =
    "The scores reach 200, and exp(89) is past the largest number of 32 bits. Subtract the largest score so "
    "far.";
const char* const kVanish =
    "The scores are near -200. Each exp() of them is 0 in 32 bits, and 0 / 0 is no number. The largest score "
    "must begin "
    "at -INFINITY, not at 0.";

}  // namespace

int main() {
  return learn::run({
      {"one tile of keys, the first of which has the largest score",
       [] {
         learn::explain({{"race on shared memory", kFull}, {"has written yet", kFull}},
                        [] { expect_attention(given(kTile, kTile, 4, -1)); });
       }},
      {"several tiles of keys, and several blocks of queries",
       [] {
         learn::explain({{"race on shared memory", kNext}}, [] {
           expect_attention(given(kTile, 3 * kTile, 4, -1));
           expect_attention(given(2 * kTile, 2 * kTile, 4, -1));
         });
       }},
      {"the largest score moves from key to key", [] { expect_attention(given(kTile, 3 * kTile, -2, 3)); }},
      {"large scores do not overflow", [] { expect_attention(given(kTile, kTile, 150, 200), kOverflow); }},
      {"scores far below zero do not vanish",
       [] { expect_attention(given(kTile, kTile, -200, -190), kVanish); }},
      {"counts that are no multiples of a tile",
       [] {
         learn::explain(
             {{"for the block at", kStay}, {"the last is", kOutside}, {"has written yet", kOutside}}, [] {
               expect_attention(given(kTile, 40, -1, 1));
               expect_attention(given(45, kTile, -1, 1));
               expect_attention(given(33, 70, -1, 1));
               expect_attention(given(1, 1, 1, 1));
             });
       }},
      {"keys and values are read once for all queries of a block",
       [] { run_attention(given(2 * kTile, 2 * kTile, 0, 1), true); }},
  });
}
