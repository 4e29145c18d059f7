#include "keel/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/runtime/error.h"

namespace keel {

void check_sampling(const SamplingOptions& options) {
  KEEL_CHECK(options.temperature >= 0 && options.top_k >= 0 && options.tokens >= 0,
             "temperature, top_k and tokens must not be negative");
  KEEL_CHECK(options.top_p > 0 && options.top_p <= 1,
             "top_p is a share of the probability, above 0 and at most 1; got ", options.top_p);
  KEEL_CHECK(options.min_p >= 0 && options.min_p <= 1, "min_p must be from 0 to 1; got ", options.min_p);
  KEEL_CHECK(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
             "repetition_penalty must be above 0, where 1 is none; got ", options.repetition_penalty);
}

void penalize_repetition(std::span<float> logits, std::span<const std::int64_t> tokens, double penalty) {
  if (penalty == 1) return;
  const auto factor = static_cast<float>(penalty);
  for (const std::int64_t token : tokens) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit < 0 ? logit * factor : logit / factor;
  }
}

void TokenChooser::order_up_to(std::size_t count) {
  if (count <= ordered_) return;
  count = std::min(order_.size(), std::max({count, 8 * ordered_, std::size_t{64}}));
  const auto is_likelier = [&](std::int32_t a, std::int32_t b) {
    const float left = logits_[static_cast<std::size_t>(a)], right = logits_[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(ordered_);
  const auto end = order_.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != order_.end()) std::nth_element(begin, end, order_.end(), is_likelier);
  std::sort(begin, end, is_likelier);
  ordered_ = count;
}

double TokenChooser::weight(std::size_t place) const {
  return std::exp((logits_[static_cast<std::size_t>(order_[place])] - largest_) / temperature_);
}

std::int64_t TokenChooser::choose(std::span<const float> logits, const SamplingOptions& options, float draw) {
  std::size_t likeliest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    KEEL_CHECK(!std::isnan(logits[i]), "the model's logit of token ", i, " is not a number");
    if (logits[i] > logits[likeliest]) likeliest = i;
  }
  KEEL_CHECK(!logits.empty() && std::isfinite(logits[likeliest]), "the model's largest logit is not finite");
  if (options.temperature == 0 || options.top_k == 1) return static_cast<std::int64_t>(likeliest);

  logits_ = logits;
  largest_ = logits[likeliest];
  temperature_ = options.temperature;
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  ordered_ = 0;
  std::size_t left = logits.size();  // of the likeliest
  if (options.top_k > 0) left = std::min(left, static_cast<std::size_t>(options.top_k));
  if (left < logits.size()) order_up_to(left);
  double total = 0;
  for (std::size_t i = 0; i < left; ++i) total += weight(i);

  if (options.top_p < 1 || options.min_p > 0) {
    const double share = options.top_p < 1 ? options.top_p * total : total;
    double sum = 0;
    std::size_t kept = 0;
    for (; kept < left; ++kept) {
      order_up_to(kept + 1);
      const double own = weight(kept);
      if (kept > 0 && ((options.top_p < 1 && sum >= share) || own < options.min_p)) break;
      sum += own;
    }
    left = kept;
    total = sum;
  }
  const double threshold = draw * total;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < left; ++i) {
    order_up_to(i + 1);
    sum += weight(i);
    if (sum > threshold) return order_[i];
  }
  order_up_to(left);
  return order_[left - 1];
}

}  // namespace keel
