// Loss and exact match of batches whose answers are known.

#include "keel/trainer/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/data/token_batch.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/optim/optimizer.h"
#include "keel/tasks/language.h"
#include "keel/tasks/metrics/classes.h"
#include "tests/support.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

using testing::doubles;

constexpr std::int64_t kBlock = 6;

// Batches of one, two and three rows.
class Batches final : public BatchSource {
 public:
  std::vector<Batch> batches;

  std::int64_t steps() const override { return std::ssize(batches); }
  std::int64_t rows(std::int64_t step) const override { return batches.at(static_cast<std::size_t>(step)).rows(); }
  Batch load(std::int64_t step, Rows) const override { return batches.at(static_cast<std::size_t>(step)); }
};

struct Expected {
  double loss = 0;
  std::int64_t tokens = 0, rows = 0, right = 0;
};

// Targets are the model's own answers, apart from those that `spoil` changes.
template <class Spoil>
Expected fill_batches(const Gpt& model, const Context& context, Batches& loader, const Spoil& spoil) {
  const NoGrad no_grad;
  const std::int64_t vocabulary = model.options.vocabulary;
  Expected expected;
  for (std::int64_t rows = 1; rows <= 3; ++rows) {
    std::vector<std::int32_t> inputs, targets;
    for (std::int64_t i = 0; i < rows * kBlock; ++i)
      inputs.push_back(static_cast<std::int32_t>((7 * i + rows) % vocabulary));
    const Tensor tokens = from_values(context, inputs, {rows, kBlock});
    Forward pass;
    const std::vector<double> logits = doubles(model(tokens, pass).value());
    const auto row_of = [&](std::int64_t i) { return logits.begin() + i * vocabulary; };
    for (std::int64_t i = 0; i < rows * kBlock; ++i)
      targets.push_back(static_cast<std::int32_t>(std::max_element(row_of(i), row_of(i + 1)) - row_of(i)));
    for (std::int64_t row = 0; row < rows; ++row, ++expected.rows)
      expected.right +=
          spoil(expected.rows, std::span(targets).subspan(static_cast<std::size_t>(row * kBlock), kBlock)) ? 0 : 1;
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < rows * kBlock; ++i) {
      const std::int32_t target = targets[static_cast<std::size_t>(i)];
      if (target == kIgnoreTarget) continue;
      double sum = 0;
      for (auto at = row_of(i); at != row_of(i + 1); ++at) sum += std::exp(*at);
      expected.loss += std::log(sum) - row_of(i)[target];
      ++counted;
    }
    expected.tokens += counted;
    loader.batches.push_back(token_batch(tokens, from_values(context, targets, {rows, kBlock}),
                                         zeros(context, {rows}, DType::i64), counted));
  }
  return expected;
}

// Row 0 is right; row 1 is wrong at its beginning, row 2 at its end, row 3 everywhere; row 4 is right where it counts,
// row 5 wrong where it counts.
bool spoil_some(std::int64_t row, std::span<std::int32_t> targets) {
  const auto spoil = [](std::int32_t& target) { target = (target + 1) % 61; };
  if (row == 1) spoil(targets.front());
  if (row == 2) spoil(targets.back());
  if (row == 3) std::for_each(targets.begin(), targets.end(), spoil);
  if (row >= 4) std::fill_n(targets.begin(), 4, kIgnoreTarget);
  if (row == 5) spoil(targets[4]);
  return row == 1 || row == 2 || row == 3 || row == 5;
}

TEST(Evaluation, CountsRowsWhoseEveryTargetIsTheLikeliestToken) {
  for (const int n : {1, 2, 3, 4}) {
    run_ranks(n, [](Communicator& ranks) {
      const Context context = testing::context(1);
      Gpt model(testing::tiny_gpt());
      Sharded engine(model, context, make_sgd());
      Batches loader;
      const Expected expected = fill_batches(model, context, loader, spoil_some);
      ASSERT_EQ(expected.rows, 6);
      const auto evaluate_some = [&](std::int64_t batches) {
        Metrics metrics;
        const auto& loss = metrics.make<MeanMetric>("loss");
        const auto& exact = metrics.make<ExactMatch>("exact_match");
        evaluate(
            loader, batches, context, DType::f32,
            [&](const Batch& batch, Forward& pass, Metrics& fed) { validate_language(model, batch, pass, fed); },
            metrics, ranks);
        return std::array{loss.result().front().value, loss.weight(), exact.result().front().value};
      };
      const auto [loss, weight, exact] = evaluate_some(3);
      EXPECT_EQ(exact, 2.0 / 6);
      EXPECT_EQ(weight, static_cast<double>(expected.tokens));
      EXPECT_NEAR(loss, expected.loss / static_cast<double>(expected.tokens), 1e-5);
      EXPECT_EQ(evaluate_some(1)[2], 1.0) << "of one row";
      EXPECT_EQ(evaluate_some(0)[1], 0.0);
      EXPECT_TRUE(std::isnan(evaluate_some(0)[2])) << "of none";
    });
  }
}

}  // namespace
}  // namespace keel
