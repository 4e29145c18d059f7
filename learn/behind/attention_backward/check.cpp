#include "learn/behind/heap.h"
#include "learn/behind/numbers.h"

void attention_backward(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::InMatrix out,
                        learn::In lse, learn::InMatrix dout, learn::OutMatrix dq, learn::OutMatrix dk,
                        learn::OutMatrix dv);

namespace {

using Numbers = std::vector<double>;

// out and lse of double precision.
struct Forward {
  Numbers out, lse;
};

Forward forward(const Numbers& q, const Numbers& k, const Numbers& v, std::size_t size) {
  Forward all;
  for (std::size_t t = 0; t < q.size() / size; ++t) {
    Numbers scores, row(size);
    for (std::size_t j = 0; j <= t; ++j) {
      double dot = 0;
      for (std::size_t d = 0; d < size; ++d) dot += q[t * size + d] * k[j * size + d];
      scores.push_back(dot / std::sqrt(static_cast<double>(size)));
    }
    const double largest = *std::ranges::max_element(scores);
    double sum = 0;
    for (std::size_t j = 0; j <= t; ++j) {
      const double p = std::exp(scores[j] - largest);
      sum += p;
      for (std::size_t d = 0; d < size; ++d) row[d] += p * v[j * size + d];
    }
    for (const double x : row) all.out.push_back(x / sum);
    all.lse.push_back(largest + std::log(sum));
  }
  return all;
}

struct Gradients {
  Numbers dq, dk, dv;
};

// T rows of D numbers each, and what the forward pass has kept.
struct Input {
  std::int64_t length, size;
  std::vector<float> q, k, v, dout, out, lse;

  Input(std::int64_t length, std::int64_t size, std::uint64_t seed, double largest = 1)
      : length(length),
        size(size),
        q(learn::draw(length * size, seed, -largest, largest)),
        k(learn::draw(length * size, seed + 1, -largest, largest)),
        v(learn::draw(length * size, seed + 2)),
        dout(learn::draw(length * size, seed + 3)) {
    const Forward kept =
        forward(learn::wide(q), learn::wide(k), learn::wide(v), static_cast<std::size_t>(size));
    out.assign(kept.out.begin(), kept.out.end());
    lse.assign(kept.lse.begin(), kept.lse.end());
  }

  // By differences of the sum of dout out.
  Gradients by_differences() const {
    Numbers wq = learn::wide(q), wk = learn::wide(k), wv = learn::wide(v);
    const auto loss = [&] {
      const Numbers o = forward(wq, wk, wv, static_cast<std::size_t>(size)).out;
      double sum = 0;
      for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * dout[i];
      return sum;
    };
    return {learn::slopes(wq, loss), learn::slopes(wk, loss), learn::slopes(wv, loss)};
  }
};

// Where a way back goes wrong.
struct Ways {
  enum class Delta { kSum, kNone, kOwnTerm, kUnweighted } delta = Delta::kSum;
  bool scaled = true, causal = true, times_p = true;
};

// By the chain rule, with all probabilities of a row held.
Gradients by_formula(const Input& in, const Ways& ways = {}) {
  const auto size = static_cast<std::size_t>(in.size), length = static_cast<std::size_t>(in.length);
  Gradients all{Numbers(size * length), Numbers(size * length), Numbers(size * length)};
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  for (std::size_t t = 0; t < length; ++t) {
    const std::size_t end = ways.causal ? t + 1 : length;
    Numbers p, dp;
    double sum_p_dp = 0, sum_dp = 0;
    for (std::size_t j = 0; j < end; ++j) {
      double score = 0, of_value = 0;
      for (std::size_t d = 0; d < size; ++d) {
        score += double{in.q[t * size + d]} * in.k[j * size + d] * scale;
        of_value += double{in.dout[t * size + d]} * in.v[j * size + d];
      }
      p.push_back(std::exp(score - in.lse[t]));
      dp.push_back(of_value);
      if (j <= t) sum_p_dp += p[j] * dp[j], sum_dp += dp[j];
    }
    for (std::size_t j = 0; j < end; ++j) {
      const double delta = ways.delta == Ways::Delta::kSum       ? sum_p_dp
                           : ways.delta == Ways::Delta::kNone    ? 0
                           : ways.delta == Ways::Delta::kOwnTerm ? p[j] * dp[j]
                                                                 : sum_dp;
      const double dscore = (ways.times_p ? p[j] : 1) * (dp[j] - delta) * (ways.scaled ? scale : 1);
      for (std::size_t d = 0; d < size; ++d) {
        all.dv[j * size + d] += p[j] * in.dout[t * size + d];
        all.dq[t * size + d] += dscore * in.k[j * size + d];
        all.dk[j * size + d] += dscore * in.q[t * size + d];
      }
    }
  }
  return all;
}

struct Told {
  Ways ways;
  std::string why;
};
const std::vector<Told>& told() {
  static const std::vector<Told> all = {
      {{.delta = Ways::Delta::kNone},
       "delta[t] is missing: dscore = p dp is not the derivative of softmax. A larger score makes all other "
       "probabilities of its row smaller."},
      {{.delta = Ways::Delta::kOwnTerm},
       "So it is with p(t, j) dp(t, j) in place of delta[t]. delta[t] is the same for every key of t, the "
       "sum over all of them."},
      {{.delta = Ways::Delta::kUnweighted}, "So it is if delta[t] is the sum of dp. It is the sum of p dp."},
      {{.scaled = false},
       "1 / sqrt(D) is missing in dq and dk: the score has it, so its derivative has it, too."},
      {{.causal = false},
       "So it is if all keys get their part, also those after t, which t has not seen: j goes from 0 to t."},
      {{.times_p = false}, "dscore has lost its factor p(t, j)."},
  };
  return all;
}

enum class Look { kAtValues, kAtAll };

void expect_near_all(const Input& in, const Gradients& wanted, Look look, std::string_view why = {}) {
  learn::WrittenMatrix dq(in.length, in.size, 0), dk(in.length, in.size, 0), dv(in.length, in.size, 0);
  const auto in_rows = [&](const std::vector<float>& x) { return learn::matrix(x, in.size); };
  attention_backward(in_rows(in.q), in_rows(in.k), in_rows(in.v), in_rows(in.out), learn::in(in.lse),
                     in_rows(in.dout), dq, dk, dv);
  const auto untouched = [](const learn::WrittenMatrix& m) {
    return std::ranges::all_of(m.read(), [](float x) { return x == 0; });
  };
  const std::string given =
      why.empty() ? fmt::format("T = {}, D = {}", in.length, in.size) : std::string(why);
  if (untouched(dv)) learn::wrong("All of dv is still 0: nothing was added to it yet.");
  std::vector<learn::Mistake> of_dv, of_dq, of_dk;
  for (const Told& one : told()) {
    const Gradients gives = by_formula(in, one.ways);
    of_dv.push_back({gives.dv, one.why});
    of_dq.push_back({gives.dq, one.why});
    of_dk.push_back({gives.dk, one.why});
  }
  learn::expect_numbers("dv", in.size, dv.read(), wanted.dv, 1e-5, given, of_dv);
  if (look == Look::kAtValues) return;
  if (in.length > 1 && untouched(dq) && untouched(dk))
    learn::wrong("dv is right. All of dq and dk is still 0: nothing was added to them yet.");
  learn::expect_numbers("dq", in.size, dq.read(), wanted.dq, 1e-5, given, of_dq);
  learn::expect_numbers("dk", in.size, dk.read(), wanted.dk, 1e-5, given, of_dk);
}

void takes_large_scores() {
  Input in(3, 1, 1);
  in.q = {1, 1, 1};
  in.k = {100, 99, 101};
  const Forward kept = forward(learn::wide(in.q), learn::wide(in.k), learn::wide(in.v), 1);
  in.out.assign(kept.out.begin(), kept.out.end());
  in.lse.assign(kept.lse.begin(), kept.lse.end());
  expect_near_all(in, by_formula(in), Look::kAtAll,
                  "scores are (100, 99, 101). Where it is NaN, exp(score) overflows before it is divided: "
                  "the difference score - lse has to be inside of one exp()");
}

std::int64_t peak(std::int64_t length) {
  const Input in(length, 4, 30);
  learn::WrittenMatrix dq(in.length, in.size, 0), dk(in.length, in.size, 0), dv(in.length, in.size, 0);
  const auto in_rows = [&](const std::vector<float>& x) { return learn::matrix(x, in.size); };
  return learn::peak_bytes([&] {
    attention_backward(in_rows(in.q), in_rows(in.k), in_rows(in.v), in_rows(in.out), learn::in(in.lse),
                       in_rows(in.dout), dq, dk, dv);
  });
}

void holds_no_probabilities() {
  const std::int64_t few = peak(32), many = peak(256);
  if (many > few + 64)
    learn::wrong(
        "With 32 positions attention_backward() holds {} bytes of its own, and with 256 it holds {}. It "
        "grows {}: probabilities are held. Compute each p(t, j) when its pair comes, and delta[t] from "
        "out[t].",
        few, many, many >= 32 * few ? "with the square of T" : "with T");
}

}  // namespace

int main() {
  return learn::run({
      {"the value of a single position gets all of dout",
       [] {
         const Input in(1, 3, 1);
         expect_near_all(in, in.by_differences(), Look::kAtValues);
       }},
      {"values get their part of every later position",
       [] {
         const Input in(4, 3, 2);
         expect_near_all(in, in.by_differences(), Look::kAtValues);
       }},
      {"dq and dk of two positions are what differences say",
       [] {
         const Input in(2, 3, 3);
         expect_near_all(in, in.by_differences(), Look::kAtAll);
       }},
      {"so are those of 7 positions",
       [] {
         const Input in(7, 5, 4, 2);
         expect_near_all(in, in.by_differences(), Look::kAtAll);
       }},
      {"a single position cannot move its one probability",
       [] {
         const Input in(1, 3, 5);
         expect_near_all(in, in.by_differences(), Look::kAtAll);
       }},
      {"large scores do not overflow", takes_large_scores},
      {"61 positions are right",
       [] {
         const Input in(61, 16, 6);
         expect_near_all(in, by_formula(in), Look::kAtAll);
       }},
      {"memory does not grow with the length", holds_no_probabilities},
  });
}
