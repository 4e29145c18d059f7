#include "keel/tasks/token_classification.h"

#include <algorithm>

#include "keel/data/token_batch.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/softmax.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/label_task.h"
#include "keel/tasks/metrics/values.h"
#include "keel/tasks/word_tokens.h"

namespace keel {
namespace {

// Fields of predictions: of a word's first token the word's number, else kNoWord; and how many words there are.
constexpr const char *kWords = "words", *kWordCounts = "word_counts";

// One each of the words.
std::vector<std::string> word_labels(const Example& record, const std::string& field, std::size_t words) {
  std::vector<std::string> labels;
  if (const auto* wholes = std::get_if<Integers>(&record[field]))
    for (const std::int64_t each : wholes->values) labels.push_back(std::to_string(each));
  else if (text_or_json(record[field]) != nullptr) labels = words_of_record(record, field);
  else labels = {class_text(record, field)};
  KEEL_CHECK(labels.size() == words, "there are ", words, " words and ", labels.size(), " labels in '",
             printable(field, 64), "'; each word has one");
  return labels;
}

class TokenTask : public LabelTask {
 public:
  using LabelTask::LabelTask;

  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const Tensor chances = kernels::softmax(outputs(batch, pass).value());
    const std::vector<std::int64_t> best = whole_values(kernels::argmax(chances, -1));
    const std::vector<double> highest = floating_numbers(kernels::max(chances, {-1}));
    const std::vector<std::int64_t> words = whole_values(batch[kWords]), counts = whole_values(batch[kWordCounts]);
    const std::size_t time = words.size() / counts.size();
    for (std::size_t row = 0; row < counts.size(); ++row) {
      // A word without a token, as one that was cut off, has no label.
      std::vector<Json> labels(static_cast<std::size_t>(counts[row])), probabilities = labels;
      for (std::size_t i = row * time; i < (row + 1) * time; ++i) {
        if (words[i] == kNoWord) continue;
        const auto word = static_cast<std::size_t>(words[i]);
        labels[word] = classes()->names()[static_cast<std::size_t>(best[i])];
        probabilities[word] = highest[i];
      }
      out.add(batch.examples()[row], {{"labels", labels}, {"probabilities", probabilities}});
    }
  }

 protected:
  EncoderHead head() const override { return EncoderHead::tokens; }

  std::vector<std::string> classes_in(const Example& record) const override {
    return word_labels(record, form().labels.front(), words_of_record(record, form().texts.front()).size());
  }
  std::string text_in(const Example& record) const override {
    std::string text;
    for (const std::string& word : words_of_record(record, form().texts.front())) text += concat(word, ' ');
    return text;
  }

  MakeExample make_example() const override {
    return [](const Reading& reading, const Example& record) {
      const std::vector<std::string> words = words_of_record(record, reading.texts.front());
      const WordTokens tokens = encoded_words(*reading.tokenizer, words, reading.limit);
      Example made;
      set_tokens(made, tokens.encoding, reading.token_types);
      const Dims shape = {std::ssize(tokens.first_of)};
      if (!reading.has_labels) {
        made.set(kWords, Integers{shape, tokens.first_of});
        return made.set(kWordCounts, std::ssize(words));
      }
      const std::vector<std::string> names = word_labels(record, reading.labels.front(), words.size());
      std::vector<std::int64_t> numbers;
      for (const std::string& name : names) numbers.push_back(reading.classes->number_of(name));
      Integers labels = {shape, {}};
      for (const std::int64_t word : tokens.first_of)
        labels.values.push_back(word == kNoWord ? kIgnoreTarget : numbers[static_cast<std::size_t>(word)]);
      return made.set(std::string(kLabels), std::move(labels));
    };
  }
  std::vector<PaddedField> padded(bool has_labels) const override {
    if (has_labels) return {{std::string(kLabels), kIgnoreTarget}};
    return {{kWords, kNoWord}};
  }

  Loss loss_of(const Variable& outputs, const Batch& batch) override { return class_loss(outputs, batch, kLabels); }
};

std::vector<KeyRow> token_keys() {
  std::vector<KeyRow> rows = label_keys();
  rows.push_back(label_metrics_key());
  for (const KeyRow& row : model_keys(ModelKind::encoder, "bert")) rows.push_back(row);
  for (const KeyRow& row :
       text_record_keys({.text = "[words]",
       .text_help = "The column or field of the words: a list of JSON lines, or words between spaces.",
       .label = "[labels]",
       .label_help = "The column or field of their labels, as many: texts, whole numbers, or texts between spaces. "
                     "The first token of a word has its label, and others have none."}))
    rows.push_back(row);
  return rows;
}

std::string tokens_of_hub(const std::string& folder) {
  return label_task_of_hub(folder, "ForTokenClassification", [](const HubLabels& labels) -> HubSections {
    return {concat("type: token_classification, classes: ", Json(labels.names).dump()), {}};
  });
}

}  // namespace

TaskEntry token_classification_task() {
  TaskEntry entry = task_entry<TokenTask>("token_classification", "a class of each word of a text", token_keys());
  entry.complain = [](const Settings& settings) {
    std::vector<SettingsComplaint> complaints = complain_of_labels(settings, true);
    if (settings.texts("data.text").size() > 1)
      complaints.push_back({{"data.text"}, "names several columns, and words are in one; leave the others out"});
    return complaints;
  };
  entry.of_hub = tokens_of_hub;
  entry.example =
      "task: {type: token_classification, metrics: [accuracy, f1_macro]}\n"
      "model: {type: bert, layers: 2, heads: 4, width: 128, block: 128}\n"
      "data: {path: names.jsonl, text: [words], label: [tags], tokenizer: tokenizer.json}\n";
  return entry;
}

}  // namespace keel
