#include <algorithm>
#include <limits>

#include "learn/behind/check.h"

void softmax(learn::In x, learn::Out y);

namespace {

std::vector<double> expected(const std::vector<float>& x) {
  double largest = x[0], sum = 0;
  for (const float v : x) largest = std::max(largest, double{v});
  std::vector<double> y;
  for (const float v : x) y.push_back(std::exp(v - largest));
  for (const double v : y) sum += v;
  for (double& v : y) v /= sum;
  return y;
}

void expect_softmax(const std::vector<float>& x, std::string_view why) {
  learn::Written y(static_cast<std::int64_t>(x.size()));
  softmax(learn::in(x), y);
  const std::vector<double> wanted = expected(x);
  if (learn::first_apart(y.read(), wanted, 1e-6) >= 0 && !why.empty())
    learn::expect_near("y", y.read(), wanted, 1e-6, why);
  y.expect_whole("y");
  learn::expect_near("y", y.read(), wanted, 1e-6);
}

void writes_probabilities() {
  const std::vector<float> x = {1, 2, 3, 0.5F};
  learn::Written y(4);
  softmax(learn::in(x), y);
  y.expect_whole("y");
  double sum = 0, exponentials = 0;
  for (const float v : y.read()) sum += v;
  for (const float v : x) exponentials += std::exp(double{v});
  if (std::abs(sum - exponentials) < 1e-3 * sum)
    learn::wrong("The sum of y is {:.4f}, the sum of all exp(x[i]). Each has to be divided by that sum.",
                 sum);
  if (std::abs(sum - 1) > 1e-5) learn::wrong("The sum of y is {:.6f}, and that of probabilities is 1.", sum);
  learn::expect_near("y", y.read(), expected(x), 1e-6);
}

void leaves_out() {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& x : {std::vector<float>{1, -infinity, 2}, {-infinity, -infinity, -3, -4}})
    expect_softmax(x,
                   "x holds -infinity, and exp(-infinity) is 0. The largest score is the largest of those "
                   "that are finite: -infinity minus -infinity is no number.");
}

void ignores_a_constant() {
  for (const std::int64_t size : {2, 17, 1000}) {
    std::vector<float> x = learn::draw(size, 7, -4, 4), moved;
    for (float& v : x) v = std::round(v * 256) / 256;  // so that the sums below are exact
    for (const float v : x) moved.push_back(v + 1024);
    learn::Written y(size), y_moved(size);
    softmax(learn::in(x), y);
    softmax(learn::in(moved), y_moved);
    y.expect_whole("y");
    const std::vector<double> wanted = expected(x);
    for (std::int64_t i = 0; i < size; ++i) {
      const double e = wanted[static_cast<std::size_t>(i)];
      if (std::abs(y[i] - e) > 1e-5 * e)
        learn::wrong("Of {} scores, y[{}] is {:.8g}, and {:.8g} was expected.", size, i, y[i], e);
      if (!(std::abs(y_moved[i] - e) <= 1e-5 * e))
        learn::wrong("With 1024 added to all {} scores, y[{}] is {:.8g}, and it was {:.8g} before.", size, i,
                     y_moved[i], y[i]);
    }
  }
}

}  // namespace

int main() {
  return learn::run({
      {"the row is written, and adds up to 1", writes_probabilities},
      {"a row of one number is 1", [] { expect_softmax({3}, ""); }},
      {"large scores do not overflow",
       [] {
         expect_softmax({100, 0, 99},
                        "x is (100, 0, 99). exp(100) is past the largest number of 32 bits, so it becomes "
                        "infinite, and infinite / infinite is no number. Subtract the same number from each "
                        "score first: the quotient stays as it is.");
       }},
      {"scores far below zero do not vanish",
       [] {
         expect_softmax({-200, -201, -203},
                        "x is (-200, -201, -203). Each exp() is 0 in 32 bits, and 0 / 0 is no number. What "
                        "is subtracted must be the row's own largest score: then one exp() is exp(0) = 1. "
                        "Its search must not begin at 0.");
       }},
      {"one score far above all others keeps its row finite",
       [] {
         expect_softmax({300, 0, 2, -5, 1},
                        "x is (300, 0, 2, -5, 1). Its mean is near 60, and exp(300 - 60) is infinite in 32 "
                        "bits. Subtract the largest score: then no exponential is larger than 1.");
       }},
      {"a word that is ruled out, with the score -infinity, has probability 0", leaves_out},
      {"a constant that is added to all scores changes nothing", ignores_a_constant},
  });
}
