#include "keel/models/generation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using Numbers = std::vector<std::int64_t>;

struct GeneratedRow {
  Numbers text;
  std::int64_t unread = 0;  // tokens at the end of `text` that the cache does not hold yet
  bool goes_on = true;
  std::vector<bool> has = {};  // by token, where repetition costs
  Numbers distinct = {};

  void count(std::int64_t token) {
    const auto at = static_cast<std::size_t>(token);
    if (has.empty() || has[at]) return;
    has[at] = true;
    distinct.push_back(token);
  }
};

class BatchGeneration {
 public:
  BatchGeneration(const CausalModel& model, std::span<const Numbers> prompts, const SamplingOptions& options)
      : model_(model), options_(options) {
    std::int64_t longest = 0;
    for (const Numbers& prompt : prompts) longest = std::max(longest, add_row(prompt));
    cache_ = model.make_cache(std::ssize(prompts), longest + options.tokens);
  }

  void run(const std::function<bool(std::size_t, std::int64_t)>& on_token) {
    Numbers chosen(rows_.size());
    for (std::int64_t step = 0; step < options_.tokens; ++step) {
      const auto passes = passes_of(step);
      if (passes.empty()) return;
      for (const auto& [unread, rows] : passes) read(rows, unread.first, step, chosen);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        GeneratedRow& row = rows_[i];
        if (!row.goes_on) continue;
        row.goes_on =
            std::ranges::find(options_.end_tokens, chosen[i]) == options_.end_tokens.end() && on_token(i, chosen[i]);
        row.text.push_back(chosen[i]);
        row.count(chosen[i]);
        row.unread = 1;
      }
    }
  }

 private:
  std::int64_t add_row(const Numbers& prompt) {
    KEEL_CHECK(!prompt.empty(), "generation needs a prompt of at least one token");
    GeneratedRow row{.text = prompt, .unread = std::ssize(prompt)};
    if (options_.repetition_penalty != 1) row.has.resize(static_cast<std::size_t>(model_.vocabulary()));
    for (const std::int64_t token : prompt) {
      KEEL_CHECK(token >= 0 && token < model_.vocabulary(), "token ", token,
                 " of the prompt is outside of the model's ", model_.vocabulary());
      row.count(token);
    }
    rows_.push_back(std::move(row));
    return std::ssize(prompt);
  }

  // Rows by how many tokens they read in this step, and how many they hold where the model asks that.
  std::map<std::pair<std::int64_t, std::int64_t>, Numbers> passes_of(std::int64_t step) {
    std::map<std::pair<std::int64_t, std::int64_t>, Numbers> passes;
    const std::int64_t block = model_.block();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      GeneratedRow& row = rows_[i];
      if (!row.goes_on) continue;
      std::int64_t& held = cache_.lengths[i];
      if (held + row.unread > block) {
        held = 0;
        row.unread = std::min(std::ssize(row.text), step == 0 ? block : (block + 1) / 2);
      }
      passes[{row.unread, model_.mixes_lengths() ? 0 : held}].push_back(static_cast<std::int64_t>(i));
    }
    return passes;
  }

  void read(const Numbers& rows, std::int64_t unread, std::int64_t step, Numbers& chosen) {
    Numbers tokens;
    for (const std::int64_t i : rows) {
      const Numbers& text = rows_[static_cast<std::size_t>(i)].text;
      tokens.insert(tokens.end(), text.end() - unread, text.end());
    }
    const Tensor logits =
        model_.next_logits(from_values(model_.context(), tokens, {std::ssize(rows), unread}), CachedRows(cache_, rows));
    std::vector<float> numbers = kernels::cast(logits, DType::f32).to_vector<float>();
    const auto vocabulary = static_cast<std::size_t>(logits.dim(1));
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const auto i = static_cast<std::size_t>(rows[k]);
      const std::span<float> own = std::span(numbers).subspan(k * vocabulary, vocabulary);
      penalize_repetition(own, rows_[i].distinct, options_.repetition_penalty);
      const float draw = draw_of(options_.seed, options_.first_row + i, static_cast<std::uint64_t>(step));
      chosen[i] = chooser_.choose(own, options_, draw);
    }
  }

  const CausalModel& model_;
  const SamplingOptions& options_;
  std::vector<GeneratedRow> rows_;
  KeyValueCache cache_;
  TokenChooser chooser_;
};

}  // namespace

void generate_batch(const CausalModel& model, std::span<const std::vector<std::int64_t>> prompts,
                    const SamplingOptions& options,
                    const std::function<bool(std::size_t prompt, std::int64_t token)>& on_token) {
  check_sampling(options);
  if (!prompts.empty()) BatchGeneration(model, prompts, options).run(on_token);
}

void generate(const CausalModel& model, std::span<const std::int64_t> prompt, const SamplingOptions& options,
              const std::function<bool(std::int64_t)>& on_token) {
  const std::vector<std::vector<std::int64_t>> one = {{prompt.begin(), prompt.end()}};
  generate_batch(model, one, options, [&](std::size_t, std::int64_t token) { return on_token(token); });
}

}  // namespace keel
