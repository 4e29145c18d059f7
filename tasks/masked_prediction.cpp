#include "keel/tasks/masked_prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "keel/autograd/functions.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/tasks/language_prediction.h"
#include "keel/tasks/masking.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tasks/text_records.h"

namespace keel {
namespace {

constexpr std::size_t kLikeliest = 5;

std::vector<std::int32_t> encoded_masked_text(const MaskedTexts& form, const std::string& text) {
  const std::vector<std::uint32_t> ids = form.tokenizer->encode({text, std::nullopt}, uncut(/*specials=*/true)).ids;
  KEEL_CHECK(std::ssize(ids) <= form.length, "the text has ", ids.size(),
             " tokens with special ones, and the model reads ", form.length, "; shorten it");
  KEEL_CHECK(std::ranges::find(ids, static_cast<std::uint32_t>(form.mask_token)) != ids.end(), "the text has no ",
             *form.tokenizer->token_text(static_cast<std::uint32_t>(form.mask_token)),
             "; write it where a token shall be guessed");
  return {ids.begin(), ids.end()};
}

Json likeliest_tokens(const Tokenizer& tokenizer, std::span<const float> logits) {
  // A vocabulary that was rounded up has numbers that mean nothing.
  logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(tokenizer.vocabulary_size())));
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  const std::size_t count = std::min(kLikeliest, order.size());
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(count),
      [&](std::uint32_t a, std::uint32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  double sum = 0;
  const double most = logits[order.front()];
  for (const float logit : logits) sum += std::exp(logit - most);
  Json tokens = Json::array();
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back({{"token", tokenizer.decode(std::span(&order[i], 1))},
                      {"probability", std::exp(logits[order[i]] - most) / sum}});
  return tokens;
}

}  // namespace

std::shared_ptr<const BatchSource> masked_texts(const TaskSite& site, const std::string& path,
                                                const MaskedTexts& form) {
  const DatasetPtr texts = open_texts_to_predict(path);
  const Collator collator = [texts, path, form](std::span<const CollatedRow> rows, const CollateInfo& info,
                                                Batch& batch) {
    std::vector<std::vector<std::int32_t>> encoded;
    std::size_t time = 1;
    for (const CollatedRow& row : rows) {
      try {
        encoded.push_back(encoded_masked_text(form, row.example.text("text")));
      } catch (const Error& error) { throw Error(concat("'", path, "', ", texts->place(row.index), ": "), error); }
      time = std::max(time, encoded.back().size());
    }
    std::vector<std::int32_t> inputs(encoded.size() * time, form.padding_token);
    std::vector<std::int64_t> lengths;
    for (std::size_t row = 0; row < encoded.size(); ++row) {
      std::ranges::copy(encoded[row], inputs.begin() + static_cast<std::ptrdiff_t>(row * time));
      lengths.push_back(std::ssize(encoded[row]));
    }
    batch.set(std::string(kInputIds),
              from_values(info.context, inputs, {std::ssize(rows), static_cast<std::int64_t>(time)}));
    batch.set(std::string(kLengths), from_values(info.context, lengths, {std::ssize(rows)}));
  };
  return in_order(site, texts, collator, {std::string(kInputIds)});
}

Tensor logits_at(const EncoderModel& model, const EncoderInput& input, const Tensor& positions, Forward& pass) {
  const Variable states = model.states(input, pass);
  return model.head_of(index_select(view(states, {-1, states.dim(-1)}), 0, positions), input, pass).value();
}

void fill_masks(const EncoderModel& model, const MaskedTexts& form, const Batch& batch, Forward& pass,
                Predictions& out) {
  const std::vector<std::int32_t> ids = batch[kInputIds].to_vector<std::int32_t>();
  std::vector<std::int64_t> masks;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == form.mask_token) masks.push_back(static_cast<std::int64_t>(i));
  const Tensor index = from_values(batch[kInputIds].context(), masks, {std::ssize(masks)});
  const Tensor logits = logits_at(model, {.tokens = batch[kInputIds], .lengths = batch[kLengths]}, index, pass);
  const std::vector<float> values = kernels::cast(logits, DType::f32).to_vector<float>();
  const auto width = static_cast<std::size_t>(logits.dim(-1));
  std::vector<Json> guesses(static_cast<std::size_t>(batch.rows()), Json::array());
  for (std::size_t i = 0; i < masks.size(); ++i)
    guesses[static_cast<std::size_t>(masks[i] / batch[kInputIds].dim(1))].push_back(
        likeliest_tokens(*form.tokenizer, std::span(values).subspan(i * width, width)));
  for (std::size_t row = 0; row < guesses.size(); ++row)
    out.add(batch.examples()[row], {{"masks", std::move(guesses[row])}});
}

}  // namespace keel
