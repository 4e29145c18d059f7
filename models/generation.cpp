#include "keel/models/generation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/select.h"
#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel {
namespace {

// One token drawn from softmax(logits / temperature) over the top k, by the i-th uniform number of the seed.
std::int64_t sample(const Tensor& logits, const SamplingOptions& options, std::uint64_t i) {
  const std::int64_t vocabulary = logits.dim(-1);
  const std::int64_t k = options.temperature == 0 ? 1
                         : options.top_k == 0     ? vocabulary
                                                  : std::min(options.top_k, vocabulary);
  const kernels::TopK top = kernels::top_k(kernels::cast(logits, DType::f32), k);
  const std::vector<float> values = top.values.to_vector<float>();
  const std::vector<std::int64_t> indices = top.indices.to_vector<std::int64_t>();
  if (k == 1) return indices[0];
  std::vector<double> cumulative(static_cast<std::size_t>(k));
  double total = 0;
  for (std::size_t j = 0; j < cumulative.size(); ++j) {
    total += std::exp((values[j] - values[0]) / options.temperature);
    cumulative[j] = total;
  }
  const double threshold = to_uniform(stream_word(key_of(options.seed, "generate"), i)) * total;
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), threshold);
  return indices[static_cast<std::size_t>(std::min<std::int64_t>(at - cumulative.begin(), k - 1))];
}

}  // namespace

void generate(const CausalModel& model, std::span<const std::int64_t> prompt, const SamplingOptions& options,
              const std::function<bool(std::int64_t)>& on_token) {
  KEEL_CHECK(!prompt.empty(), "generation needs a prompt of at least one token");
  KEEL_CHECK(options.temperature >= 0 && options.top_k >= 0 && options.tokens >= 0,
             "temperature, top_k and tokens must not be negative");
  const Context& context = model.context();
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  KeyValueCache cache = model.make_cache(1, std::ssize(text) + options.tokens);
  std::size_t unread = text.size();  // tokens at the end of `text` that the cache does not hold yet
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (cache.length + static_cast<std::int64_t>(unread) > model.block()) {
      cache.length = 0;
      unread = std::min(text.size(), static_cast<std::size_t>(i == 0 ? model.block() : (model.block() + 1) / 2));
    }
    const Tensor tokens =
        from_values(context, std::span<const std::int64_t>(text).last(unread), {1, static_cast<std::int64_t>(unread)});
    const std::int64_t token = sample(model.next_logits(tokens, cache), options, static_cast<std::uint64_t>(i));
    if (!on_token(token)) return;
    text.push_back(token);
    unread = 1;
  }
}

}  // namespace keel
