#include "keel/trainer/evaluation.h"

#include <algorithm>

#include "keel/data/prefetch.h"
#include "keel/dist/comm/exchange.h"
#include "keel/kernels/reduce.h"

namespace keel {
namespace {

// Rows of which every target that counts is the token with the largest logit.
std::int64_t rows_right(const Tensor& logits, const Tensor& targets) {
  const Tensor likeliest = kernels::argmax(logits, -1);
  const std::int64_t rows = targets.dim(0), block = targets.dim(1);
  const std::vector<std::int64_t> guesses = likeliest.to_vector<std::int64_t>();
  const std::int64_t* guess = guesses.data();
  const std::int32_t* wanted = targets.data<std::int32_t>();
  std::int64_t right = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    bool whole = true;
    for (std::int64_t i = row * block; i < (row + 1) * block; ++i)
      whole = whole && (wanted[i] == kIgnoreTarget || wanted[i] == guess[i]);
    right += whole;
  }
  return right;
}

// What came of one batch.
struct BatchResult {
  double loss = 0;  // mean over its tokens
  std::int64_t tokens = 0, rows = 0, right = 0;
};

BatchResult evaluate_batch(const Gpt& model, const Batch& batch, bool answers) {
  const Batch on_device = transfer(batch, model.wte.weight.value().context());
  Forward pass;
  const Variable logits = model(on_device.inputs, pass);
  BatchResult result{.tokens = batch.target_tokens, .rows = batch.inputs.dim(0)};
  if (answers) result.right = rows_right(logits.value(), batch.targets);
  result.loss = cross_entropy(logits, on_device.targets).loss.value().item();
  return result;
}

}  // namespace

EvalReport evaluate(const Gpt& model, const Loader& loader, const EvaluationOptions& options, Communicator& ranks) {
  const NoGrad no_grad;
  BatchResult sum;
  for (std::int64_t first = 0; first < options.batches; first += ranks.size()) {
    // Ranks may gather weights from each other in a forward pass, so those without a batch repeat the last one.
    const std::int64_t mine = std::min(first + ranks.rank(), options.batches - 1);
    const BatchResult result = evaluate_batch(model, loader.load(mine), options.answers);
    std::int64_t batch = first;
    for (const BatchResult& each : gather_values(ranks, result)) {
      if (batch++ >= options.batches) break;
      sum.loss += each.loss * static_cast<double>(each.tokens);
      sum.tokens += each.tokens;
      sum.rows += each.rows;
      sum.right += each.right;
    }
  }
  EvalReport report;
  if (sum.tokens > 0) report.loss = sum.loss / static_cast<double>(sum.tokens);
  if (options.answers && sum.rows > 0)
    report.exact_match = static_cast<double>(sum.right) / static_cast<double>(sum.rows);
  return report;
}

}  // namespace keel
