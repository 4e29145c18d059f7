#include "keel/tasks/language.h"

#include <limits>

#include "keel/data/token_batch.h"
#include "keel/kernels/reduce.h"
#include "keel/runtime/error.h"

namespace keel {

Loss language_loss(const Gpt& model, const Batch& batch, Forward& pass) {
  return {model.loss(batch[kInputIds], batch[kLabels], pass), std::string(kTokenWeight)};
}

void ExactMatch::update(const Tensor& likeliest, const Tensor& labels) {
  KEEL_CHECK(likeliest.shape() == labels.shape() && labels.rank() == 2, "likeliest tokens ", likeliest.shape(),
             " and labels ", labels.shape(), " must both be (rows, block)");
  const std::vector<double> guesses = whole_numbers(likeliest), wanted = whole_numbers(labels);
  const auto rows = static_cast<std::size_t>(labels.dim(0)), block = static_cast<std::size_t>(labels.dim(1));
  for (std::size_t row = 0; row < rows; ++row) {
    bool is_right = true;
    for (std::size_t i = row * block; i < (row + 1) * block; ++i)
      is_right = is_right && (wanted[i] == kIgnoreTarget || wanted[i] == guesses[i]);
    add(0, is_right ? 1 : 0);
  }
  add(1, static_cast<double>(rows));
}

std::vector<NamedNumber> ExactMatch::result() const {
  return {{"", sum(1) > 0 ? sum(0) / sum(1) : std::numeric_limits<double>::quiet_NaN()}};
}

void validate_language(const Gpt& model, const Batch& batch, Forward& pass, Metrics& metrics) {
  const Variable logits = model(batch[kInputIds], pass);
  if (metrics.has("exact_match"))
    metrics.at<ExactMatch>("exact_match").update(kernels::argmax(logits.value(), -1), batch[kLabels]);
  metrics.at<MeanMetric>("loss").update(cross_entropy(logits, batch[kLabels]).loss.value().item(),
                                        batch.weight(kTokenWeight));
}

}  // namespace keel
