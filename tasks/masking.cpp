#include "keel/tasks/masking.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/random.h"
#include "keel/tasks/position_draws.h"
#include "keel/tasks/text_records.h"

namespace keel {
namespace {

constexpr std::array<std::string_view, 3> kMaskings = {"tokens", "words", "budget"};
constexpr std::int64_t kMostMasked = 512;

// What a position draws: whether it is chosen, what becomes of it, and which token stands there.
struct PositionDraws {
  double choice, change;
  std::uint64_t token;
};
PositionDraws draws_at(std::size_t position, PhiloxKey key, std::uint64_t draw) {
  const PhiloxWords words = words_at(position, key, draw);
  return {words[0] * 0x1p-32, words[1] * 0x1p-32, std::uint64_t{words[2]} << 32 | words[3]};
}

// Positions [begin, end) of a row, of which none is special.
struct Word {
  std::size_t begin, end;
};

class MaskedRowMaker {
 public:
  MaskedRowMaker(const MaskingOptions& options, PhiloxKey key, std::uint64_t draw)
      : options_(options), key_(key), draw_(draw) {}

  MaskedRow make(std::span<const std::int64_t> tokens, std::span<const std::int64_t> begins) {
    std::vector<std::int32_t>& inputs = row_.inputs;
    inputs = options_.around.before;
    for (const std::int64_t token : tokens) inputs.push_back(static_cast<std::int32_t>(token));
    inputs.insert(inputs.end(), options_.around.behind.begin(), options_.around.behind.end());
    row_.labels.assign(inputs.size(), kIgnoreTarget);
    find_words(tokens, begins);
    if (options_.masking == Masking::budget) {
      choose_within_budget();
    } else {
      for (const Word& word : words_)
        if (draws_at(word.begin, key_, draw_).choice < options_.probability) mask(word);
    }
    return std::move(row_);
  }

 private:
  void find_words(std::span<const std::int64_t> tokens, std::span<const std::int64_t> begins) {
    const bool each = options_.masking == Masking::tokens || begins.empty();
    bool goes_on = false;  // the token before belongs to a word
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto token = static_cast<std::size_t>(tokens[i]);
      const bool special = token < options_.is_special.size() && options_.is_special[token];
      const std::size_t position = options_.around.before.size() + i;
      if (special) {
        goes_on = false;
        continue;
      }
      if (goes_on && !each && begins[i] == 0) words_.back().end = position + 1;
      else words_.push_back({position, position + 1});
      goes_on = true;
    }
  }

  void choose_within_budget() {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < words_.size(); ++i)
      order.emplace_back(draws_at(words_[i].begin, key_, draw_).choice, i);
    std::ranges::sort(order);
    const double wished = std::nearbyint(static_cast<double>(row_.inputs.size()) * options_.probability);
    const auto most = std::min(kMostMasked, std::max<std::int64_t>(1, static_cast<std::int64_t>(wished)));
    std::int64_t chosen = 0;
    for (const auto& [choice, i] : order) {
      const auto size = static_cast<std::int64_t>(words_[i].end - words_[i].begin);
      if (chosen + size > most) continue;
      mask(words_[i]);
      chosen += size;
    }
  }

  void mask(const Word& word) {
    for (std::size_t i = word.begin; i < word.end; ++i) {
      const PositionDraws drawn = draws_at(i, key_, draw_);
      row_.labels[i] = row_.inputs[i];
      if (drawn.change < options_.masked) row_.inputs[i] = options_.mask_token;
      else if (drawn.change < options_.masked + options_.random)
        row_.inputs[i] =
            static_cast<std::int32_t>(random_below(drawn.token, static_cast<std::uint64_t>(options_.vocabulary)));
    }
  }

  const MaskingOptions& options_;
  PhiloxKey key_;
  std::uint64_t draw_;
  MaskedRow row_;
  std::vector<Word> words_;
};

std::span<const std::int64_t> numbers_in(const CollatedRow& row, std::string_view field) {
  const auto* sequence = std::get_if<Integers>(&row.example[field]);
  KEEL_CHECK(sequence != nullptr && sequence->shape.size() == 1, "field '", field, "' of example ", row.index, " is ",
             kind_of(row.example[field]), "; what is masked is a sequence of whole numbers");
  return sequence->values;
}

void collate_masked(const MaskingOptions& options, bool by_example, std::span<const CollatedRow> rows,
                    const CollateInfo& info, Batch& batch) {
  const PhiloxKey key = key_of(info.seed, by_example ? "masks of examples" : "masks of samples");
  std::vector<MaskedRow> made;
  std::size_t time = static_cast<std::size_t>(options.length);
  for (const CollatedRow& row : rows) {
    const bool has_words = options.masking != Masking::tokens;
    made.push_back(masked_row(numbers_in(row, kInputIds),
                              has_words ? numbers_in(row, kWords) : std::span<const std::int64_t>(), options, key,
                              static_cast<std::uint64_t>(by_example ? row.index : row.sample)));
    const std::size_t length = made.back().inputs.size();
    KEEL_CHECK(options.length == 0 || length <= time, "example ", row.index, " has ", length,
               " tokens with special ones, more than the ", time, " of a row");
    time = std::max(time, length);
  }
  std::vector<std::int32_t> inputs(made.size() * time, options.padding_token),
      labels(made.size() * time, kIgnoreTarget);
  std::vector<std::int64_t> lengths;
  for (std::size_t row = 0; row < made.size(); ++row) {
    std::ranges::copy(made[row].inputs, inputs.begin() + static_cast<std::ptrdiff_t>(row * time));
    std::ranges::copy(made[row].labels, labels.begin() + static_cast<std::ptrdiff_t>(row * time));
    lengths.push_back(std::ssize(made[row].inputs));
  }
  const Dims shape = {std::ssize(rows), static_cast<std::int64_t>(time)};
  batch.set(std::string(kInputIds), from_values(info.context, inputs, shape));
  batch.set(std::string(kLabels), from_values(info.context, labels, shape));
  batch.keep_on_host(kLabels);
  batch.set(std::string(kLengths), from_values(info.context, lengths, {std::ssize(rows)}));
  batch.set_weight(std::string(kTokenWeight),
                   static_cast<double>(std::ssize(labels) - std::ranges::count(labels, kIgnoreTarget)));
}

}  // namespace

Masking parse_masking(std::string_view name) {
  const auto found = std::ranges::find(kMaskings, name);
  KEEL_CHECK(found != kMaskings.end(), "'", printable(name, 64), "' is no way of masking: tokens, words or budget");
  return static_cast<Masking>(found - kMaskings.begin());
}

MaskedRow masked_row(std::span<const std::int64_t> tokens, std::span<const std::int64_t> begins,
                     const MaskingOptions& options, PhiloxKey key, std::uint64_t draw) {
  return MaskedRowMaker(options, key, draw).make(tokens, begins);
}

Collator masked_tokens(MaskingOptions options, bool by_example) {
  return [options = std::move(options), by_example](std::span<const CollatedRow> rows, const CollateInfo& info,
                                                    Batch& batch) {
    collate_masked(options, by_example, rows, info, batch);
  };
}

}  // namespace keel
