#include "keel/tasks/language_prediction.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "keel/data/data_file.h"
#include "keel/data/sampler.h"
#include "keel/data/token_batch.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/loss.h"
#include "keel/kernels/reduce.h"
#include "keel/nn/rank_group.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using EncodedText = std::vector<std::uint32_t>;

// Batches of texts, as `fill` makes them of what `encode` makes of each.
template <class Encode, class Fill>
std::shared_ptr<const BatchSource> batches_of(const TaskSite& site, const std::string& path, Encode encode, Fill fill,
                                              const std::vector<std::string>& varying = {}) {
  const DatasetPtr texts = open_texts_to_predict(path);
  const Collator collator = [path, texts, encode, fill](std::span<const CollatedRow> rows, const CollateInfo& info,
                                                        Batch& batch) {
    std::vector<EncodedText> encoded;
    for (const CollatedRow& row : rows) {
      try {
        encoded.push_back(encode(row.example.text("text")));
      } catch (const Error& error) { throw Error(concat("'", path, "', ", texts->place(row.index), ": "), error); }
    }
    fill(encoded, info.context, batch);
  };
  return make_source(site.host, texts, sequential(texts->size(), site.validation_rows), collator, {.varying = varying});
}

// Inputs and the tokens that follow them.
void fill_windows(const std::vector<EncodedText>& texts, const Context& context, Batch& batch) {
  std::size_t time = 1;
  for (const EncodedText& text : texts) time = std::max(time, text.size() - std::min<std::size_t>(text.size(), 1));
  std::vector<std::int32_t> inputs(texts.size() * time), labels(texts.size() * time, kIgnoreTarget);
  double counted = 0;
  for (std::size_t row = 0; row < texts.size(); ++row)
    for (std::size_t i = 0; i + 1 < texts[row].size(); ++i, ++counted) {
      inputs[row * time + i] = static_cast<std::int32_t>(texts[row][i]);
      labels[row * time + i] = static_cast<std::int32_t>(texts[row][i + 1]);
    }
  const Dims shape = {std::ssize(texts), static_cast<std::int64_t>(time)};
  batch.set(std::string(kInputIds), from_values(context, inputs, shape));
  batch.set(std::string(kLabels), from_values(context, labels, shape));
  batch.set_weight(std::string(kTokenWeight), counted);
}

Tensor piece_of(const Tensor& field, std::int64_t begin, std::int64_t end) {
  return kernels::contiguous(field.slice(1, begin, end));
}

}  // namespace

DatasetPtr open_texts_to_predict(const std::string& path) {
  DatasetPtr texts = open_data(path, {.empty_lines = EmptyLines::refused});
  KEEL_CHECK(texts->size() > 0, "'", path, "' has no text to predict");
  return texts;
}

std::shared_ptr<const BatchSource> texts_to_score(const TaskSite& site, const std::string& path,
                                                  std::shared_ptr<const Tokenizer> tokenizer,
                                                  std::vector<std::uint32_t> before) {
  const auto encode = [tokenizer = std::move(tokenizer), before = std::move(before)](const std::string& text) {
    EncodedText tokens = before;
    const EncodedText own = tokenizer->encode(text);
    tokens.insert(tokens.end(), own.begin(), own.end());
    return tokens;
  };
  return batches_of(site, path, encode, fill_windows, {std::string(kInputIds), std::string(kLabels)});
}

void score_texts(const CausalModel& model, const Batch& batch, Forward& pass, Predictions& out) {
  const Tensor &inputs = batch[kInputIds], &labels = batch[kLabels];
  const std::int64_t rows = inputs.dim(0), time = inputs.dim(1), block = model.block();
  std::vector<double> sums(static_cast<std::size_t>(rows));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(rows));
  // Texts of other ranks may be longer: this one reads its first piece again meanwhile.
  for (std::int64_t begin = 0; any_goes_on(pass.group, begin < time); begin += block) {
    const bool is_own = begin < time;
    const std::int64_t from = is_own ? begin : 0, to = std::min(from + block, time);
    const Tensor logits = model(piece_of(inputs, from, to), pass).value();
    if (!is_own) continue;
    const Tensor targets = piece_of(labels, from, to);
    const std::vector<float> losses =
        kernels::cross_entropy(logits.view({rows * (to - from), logits.dim(-1)}), targets.flatten())
            .losses.to_vector<float>();
    const std::vector<std::int32_t> wanted = targets.to_vector<std::int32_t>();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(to - from);
      sums[row] += losses[i];
      counts[row] += wanted[i] == kIgnoreTarget ? 0 : 1;
    }
  }
  for (std::size_t row = 0; row < sums.size(); ++row) {
    const double loss = sums[row] / static_cast<double>(counts[row]);
    out.add(batch.examples()[row], {{"tokens", counts[row]}, {"loss", loss}, {"perplexity", std::exp(loss)}});
  }
}

std::shared_ptr<const BatchSource> sums_to_answer(const TaskSite& site, const std::string& path, AdditionTask task) {
  const auto encode = [task = std::move(task)](const std::string& text) {
    return task.tokenizer()->encode(task.prompt(task.parse_prompt(text)));
  };
  const auto fill = [](const std::vector<EncodedText>& prompts, const Context& context, Batch& batch) {
    std::vector<std::int32_t> inputs;
    for (const EncodedText& prompt : prompts) inputs.insert(inputs.end(), prompt.begin(), prompt.end());
    batch.set(std::string(kInputIds), from_values(context, inputs, {std::ssize(prompts), std::ssize(prompts.front())}));
  };
  return batches_of(site, path, encode, fill);
}

// Prompts are equally long, and so are answers: every rank makes as many passes.
void answer_sums(const CausalModel& model, const AdditionTask& task, const Batch& batch, Forward& pass,
                 Predictions& out) {
  const std::size_t rows = static_cast<std::size_t>(batch.rows());
  std::vector<EncodedText> answers(rows);
  std::vector<std::int32_t> ids = batch[kInputIds].to_vector<std::int32_t>();
  const std::int64_t length = task.digits() + 2;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::size_t time = ids.size() / rows;
    const Tensor tokens = from_values(batch[kInputIds].context(), ids,
                                      {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(time)});
    const Tensor logits = model(tokens, pass).value().select(1, static_cast<std::int64_t>(time) - 1);
    const std::vector<std::int64_t> likeliest = kernels::argmax(logits, -1).to_vector<std::int64_t>();
    std::vector<std::int32_t> longer;
    for (std::size_t row = 0; row < rows; ++row) {
      longer.insert(longer.end(), ids.begin() + static_cast<std::ptrdiff_t>(row * time),
                    ids.begin() + static_cast<std::ptrdiff_t>((row + 1) * time));
      longer.push_back(static_cast<std::int32_t>(likeliest[row]));
      answers[row].push_back(static_cast<std::uint32_t>(likeliest[row]));
    }
    ids = std::move(longer);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    std::erase_if(answers[row], [&](std::uint32_t token) { return token >= task.tokenizer()->vocabulary_size(); });
    const std::string written = task.tokenizer()->decode(answers[row]);
    const std::optional<std::int64_t> sum = task.parse_answer(written);
    out.add(batch.examples()[row], {{"sum", sum ? Json(*sum) : Json()}});
  }
}

}  // namespace keel
