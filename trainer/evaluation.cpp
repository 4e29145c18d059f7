#include "keel/trainer/evaluation.h"

#include "keel/data/prefetch.h"
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

}  // namespace

EvalReport evaluate(const Gpt& model, const Loader& loader, const EvaluationOptions& options) {
  const NoGrad no_grad;
  double loss = 0;
  std::int64_t tokens = 0, rows = 0, right = 0;
  for (std::int64_t step = 0; step < options.batches; ++step) {
    const Batch batch = loader.load(step);
    const Batch on_device = transfer(batch, model.wte.weight.value().context());
    Forward pass;
    const Variable logits = model(on_device.inputs, pass);
    if (options.answers) right += rows_right(logits.value(), batch.targets);
    const CrossEntropyLoss result = cross_entropy(logits, on_device.targets);
    loss += result.loss.value().item() * static_cast<double>(batch.target_tokens);
    tokens += batch.target_tokens;
    rows += batch.inputs.dim(0);
  }
  EvalReport report;
  if (tokens > 0) report.loss = loss / static_cast<double>(tokens);
  if (options.answers && rows > 0) report.exact_match = static_cast<double>(right) / static_cast<double>(rows);
  return report;
}

}  // namespace keel
