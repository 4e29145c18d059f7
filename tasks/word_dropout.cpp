#include "keel/tasks/word_dropout.h"

#include <optional>
#include <utility>

#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/tasks/position_draws.h"
#include "keel/tasks/special_tokens.h"

namespace keel {

WordDropout word_dropout(const Tokenizer& tokenizer, double share) {
  const std::optional<std::int32_t> stand_in =
      first_token_of(tokenizer, {"[MASK]", "<mask>", "<|mask|>", "[UNK]", "<unk>", "<|unk|>"});
  KEEL_CHECK(
      stand_in,
      "task.word_dropout: the tokenizer has no token that could stand for a hidden one ([MASK], <mask>, "
      "<|mask|>, [UNK], <unk>, <|unk|>); take one that has (`keel tokenizer train --special`), or word_dropout 0");
  return {.share = share, .stand_in = *stand_in, .is_special = special_tokens(tokenizer)};
}

void hide_words(std::vector<std::int64_t>& tokens, const WordDropout& options, PhiloxKey key, std::uint64_t draw) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<std::size_t>(tokens[i]);
    if (token < options.is_special.size() && options.is_special[token]) continue;
    if (words_at(i, key, draw)[0] * 0x1p-32 < options.share) tokens[i] = options.stand_in;
  }
}

Collator hiding_words(WordDropout options, Collator rows) {
  return [options = std::move(options), rows = std::move(rows)](std::span<const CollatedRow> examples,
                                                                const CollateInfo& info, Batch& batch) {
    const PhiloxKey key = key_of(info.seed, "word dropout");
    std::vector<CollatedRow> hidden(examples.begin(), examples.end());
    for (CollatedRow& row : hidden) {
      std::vector<Example::Field> fields = row.example.fields();
      for (auto& [name, value] : fields)
        if (name == kInputIds)
          hide_words(std::get<Integers>(value).values, options, key, static_cast<std::uint64_t>(row.sample));
      row.example = Example(std::move(fields));
    }
    rows(hidden, info, batch);
  };
}

}  // namespace keel
