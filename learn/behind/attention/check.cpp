#include "learn/behind/heap.h"
#include "learn/behind/numbers.h"

void attention(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::OutMatrix out, learn::Out lse);

namespace {

using Numbers = std::vector<double>;

// T rows of D numbers each.
struct Input {
  std::int64_t length, size;
  std::vector<float> q, k, v;

  Input(std::int64_t length, std::int64_t size, std::uint64_t seed, double largest = 1)
      : length(length),
        size(size),
        q(learn::draw(length * size, seed, -largest, largest)),
        k(learn::draw(length * size, seed + 1, -largest, largest)),
        v(learn::draw(length * size, seed + 2)) {}
  std::string words() const { return fmt::format("T = {}, D = {}", length, size); }
};

// Where an attention goes wrong.
struct Ways {
  bool scaled = true, causal = true, own = true;  // own: t sees itself
  bool shrinks_out = true, shrinks_sum = true;    // when a larger score comes
  bool divides = true;
};

struct Output {
  Numbers out, lse, largest;
};

// Softmax over all scores of a row, which are held; with a mistake, as one pass makes it.
Output expected(const Input& in, const Ways& ways = {}) {
  Output all;
  const auto size = static_cast<std::size_t>(in.size);
  for (std::size_t t = 0; t < static_cast<std::size_t>(in.length); ++t) {
    const std::size_t end = ways.causal ? t + (ways.own ? 1 : 0) : static_cast<std::size_t>(in.length);
    Numbers scores, row(size);
    for (std::size_t j = 0; j < end; ++j) {
      double dot = 0;
      for (std::size_t d = 0; d < size; ++d) dot += double{in.q[t * size + d]} * in.k[j * size + d];
      scores.push_back(ways.scaled ? dot / std::sqrt(static_cast<double>(size)) : dot);
    }
    // The weight of j is that of the largest score when it came, unless its sum is brought to each later one.
    double sum = 0;
    const double largest = scores.empty() ? 0 : *std::ranges::max_element(scores);
    double so_far = -1e300;
    for (std::size_t j = 0; j < end; ++j) {
      so_far = std::max(so_far, scores[j]);
      const double p = std::exp(scores[j] - (ways.shrinks_out ? largest : so_far));
      sum += std::exp(scores[j] - (ways.shrinks_sum ? largest : so_far));
      for (std::size_t d = 0; d < size; ++d) row[d] += p * in.v[j * size + d];
    }
    for (const double x : row) all.out.push_back(ways.divides && sum > 0 ? x / sum : x);
    all.lse.push_back(largest + std::log(sum));
    all.largest.push_back(largest);
  }
  return all;
}

std::vector<learn::Mistake> mistakes(const Input& in) {
  return {
      {expected(in, {.scaled = false}).out,
       "The scores are not divided by sqrt(D). For a large D, softmax would see huge ones."},
      {expected(in, {.causal = false}).out,
       "That is attention to all positions. A position must not see those after it: j goes from 0 to t."},
      {expected(in, {.own = false}).out, "That leaves out j = t: a position sees itself, too."},
      {expected(in, {.shrinks_out = false}).out,
       "So it is if the sum is scaled when a larger score comes, and out[t] is not: what was added to out "
       "before the larger score came was made with the old one, and must be multiplied by exp(old - new)."},
      {expected(in, {.shrinks_sum = false}).out,
       "So it is if out[t] is scaled when a larger score comes, and the sum is not: its terms were made with "
       "the old one, and must be multiplied by exp(old - new)."},
      {expected(in, {.shrinks_out = false, .shrinks_sum = false}).out,
       "So it is if nothing is scaled when a larger score comes: both the sum and out[t] were made with the "
       "old one, and must be multiplied by exp(old - new)."},
      {expected(in, {.divides = false}).out,
       "Those are sums of exp(score - largest) v. They have to be divided by the sum of all exp(score - "
       "largest)."},
  };
}

void expect(const Input& in, bool look_at_lse = false) {
  learn::WrittenMatrix out(in.length, in.size);
  learn::Written lse(in.length);
  attention(learn::matrix(in.q, in.size), learn::matrix(in.k, in.size), learn::matrix(in.v, in.size), out,
            lse);
  const Output wanted = expected(in);
  if (std::ranges::any_of(out.read(), [](float x) { return !std::isnan(x); }))
    learn::expect_numbers("out", in.size, out.read(), wanted.out, 1e-5, in.words(), mistakes(in));
  out.expect_whole("out");
  if (!look_at_lse) return;
  lse.expect_whole("lse");
  Numbers of_sum, plain;
  for (std::size_t t = 0; t < wanted.lse.size(); ++t) {
    of_sum.push_back(wanted.lse[t] - wanted.largest[t]);
    plain.push_back(std::exp(wanted.lse[t]));
  }
  learn::expect_numbers("lse", 0, lse.read(), wanted.lse, 1e-5, in.words(),
                        {{of_sum,
                          "That is log(sum). largest was subtracted from every score of the sum, so it has "
                          "to come back: lse = largest + log(sum)."},
                         {plain, "That is the sum of exp(score) itself; its log is asked for."}});
}

// Scores of one query and three keys, D = 1.
void expect_scores(const std::vector<float>& scores, std::string_view why) {
  Input in(static_cast<std::int64_t>(scores.size()), 1, 1);
  std::ranges::fill(in.q, 1.0F);
  in.k = scores;
  learn::WrittenMatrix out(in.length, 1);
  learn::Written lse(in.length);
  attention(learn::matrix(in.q, 1), learn::matrix(in.k, 1), learn::matrix(in.v, 1), out, lse);
  learn::expect_numbers("out", 1, out.read(), expected(in).out, 1e-5, why, mistakes(in));
  learn::expect_near("lse", lse.read(), expected(in).lse, 1e-5, why);
}

void looks_once() {
  const Input in(33, 4, 20);
  learn::Turns keys, values;
  learn::WrittenMatrix out(in.length, in.size);
  learn::Written lse(in.length);
  attention(learn::matrix(in.q, in.size), learn::matrix(in.k, in.size, &keys),
            learn::matrix(in.v, in.size, &values), out, lse);
  const std::int64_t pairs = in.length * (in.length + 1) / 2;
  for (const auto& [name, turns] : {std::pair("k", keys.count), std::pair("v", values.count)})
    if (turns > pairs)
      learn::wrong(
          "{}. There are {} pairs, and another row of {} was turned to {} times. One pass looks at each pair "
          "once. Two passes, the first time only for the largest score, compute each score twice, and load "
          "all keys twice from memory.",
          in.words(), pairs, name, turns);
}

std::int64_t peak(std::int64_t length) {
  const Input in(length, 8, 30);
  learn::WrittenMatrix out(in.length, in.size);
  learn::Written lse(in.length);
  return learn::peak_bytes([&] {
    attention(learn::matrix(in.q, in.size), learn::matrix(in.k, in.size), learn::matrix(in.v, in.size), out,
              lse);
  });
}

void holds_no_scores() {
  const std::int64_t few = peak(32), many = peak(256);
  if (many > few + 64)
    learn::wrong(
        "With 32 positions attention() holds {} bytes of its own, and with 256 it holds {}. It grows {}: "
        "scores are held. What is needed for one t is a few numbers and a row of D.",
        few, many, many >= 32 * few ? "with the square of T" : "with T");
}

}  // namespace

int main() {
  return learn::run({
      {"the first position sees itself alone", [] { expect(Input(1, 4, 1)); }},
      {"two positions are right", [] { expect(Input(2, 3, 4)); }},
      {"so are 37, with scores in any order", [] { expect(Input(37, 8, 7, 2)); }},
      {"lse is the log of the sum of the exponentials", [] { expect(Input(19, 5, 10, 2), true); }},
      {"scores that rise with each key are right",
       [] {
         expect_scores({-3, -1, 0, 2, 3, 5}, "each score is larger than the one before it");
       }},
      {"large scores do not overflow",
       [] {
         expect_scores({1000, 200, 1003, -4}, "scores are (1000, 200, 1003, -4)");
       }},
      {"scores far below 0 do not vanish",
       [] {
         expect_scores(
             {-1000, -1200, -1001},
             "scores are (-1000, -1200, -1001), and the search for the largest score must not begin at 0");
       }},
      {"each pair is looked at once", looks_once},
      {"memory does not grow with the length", holds_no_scores},
  });
}
