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

}  // namespace

int main() {
  return learn::run({
      {"the row is written, and adds up to 1", writes_probabilities},
      {"a row of one number is 1", [] { expect_softmax({3}, ""); }},
      {"large scores do not overflow",
       [] {
         expect_softmax(
             {100, 0, 99},
             "x is (100, 0, 99). exp(100) is past the largest number of 32 bits, so it becomes infinite, "
             "and infinite / infinite is no number. Subtract the same number from each score first: the "
             "quotient stays as it is.");
       }},
      {"scores far below zero do not vanish",
       [] {
         expect_softmax(
             {-200, -201, -203},
             "x is (-200, -201, -203). Each exp() is 0 in 32 bits, and 0 / 0 is no number. What is "
             "subtracted must be the row's own largest score: then one exp() is exp(0) = 1. Its search must "
             "not begin at 0.");
       }},
      {"equal rows give equal probabilities, whatever is added to them",
       [] {
         const std::vector<float> x = learn::draw(1000, 7, -4, 4);
         expect_softmax(x, "");
       }},
  });
}
