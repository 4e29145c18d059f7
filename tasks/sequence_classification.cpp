#include "keel/tasks/sequence_classification.h"

#include <algorithm>

#include "keel/autograd/elementwise.h"
#include "keel/autograd/reduce.h"
#include "keel/data/token_batch.h"
#include "keel/kernels/softmax.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/label_task.h"
#include "keel/tasks/metrics/values.h"

namespace keel {
namespace {

constexpr std::string_view kProblem = "task.problem", kClassification = "classification";

double finite_number_of(const Example& record, const std::string& field) {
  const Value& value = record[field];
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  throw Error(concat("the label '", printable(field, 64), "' is ", kind_of(value), ", and a number is learnt"));
}

std::string class_of_record(const Example& record, const std::string& field) {
  std::string name = class_text(record, field);
  KEEL_CHECK(!name.empty(), "the label '", printable(field, 64), "' is empty");
  return name;
}

class SequenceTask : public LabelTask {
 public:
  using LabelTask::LabelTask;

  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const Tensor said = outputs(batch, pass).value();
    const std::vector<double> numbers = floating_numbers(has_classes() ? kernels::softmax(said) : said);
    const auto width = static_cast<std::size_t>(said.dim(-1));
    for (std::size_t row = 0; row < static_cast<std::size_t>(batch.rows()); ++row) {
      const std::span<const double> own = std::span(numbers).subspan(row * width, width);
      out.add(batch.examples()[row], has_classes() ? told_class(own) : told_numbers(own));
    }
  }

 protected:
  bool has_classes() const override { return settings().text(kProblem) == kClassification; }
  EncoderHead head() const override { return EncoderHead::sequence; }

  std::vector<std::string> classes_in(const Example& record) const override {
    return {class_of_record(record, form().labels.front())};
  }
  std::string text_in(const Example& record) const override {
    const TextPair texts = texts_of_record(record, form().texts);
    return concat(texts.first, '\n', texts.second.value_or(""));
  }

  MakeExample make_example() const override {
    return [](const Reading& reading, const Example& record) {
      Example made;
      const TextPair texts = texts_of_record(record, reading.texts);
      set_tokens(made, encoded_record(*reading.tokenizer, texts, reading.limit), reading.token_types);
      if (!reading.has_labels) return made;
      if (reading.classes) {
        made.set(std::string(kLabels), reading.classes->number_of(class_of_record(record, reading.labels.front())));
        return made;
      }
      Numbers numbers = {{std::ssize(reading.labels)}, {}};
      for (const std::string& label : reading.labels)
        numbers.values.push_back(static_cast<float>(finite_number_of(record, label)));
      made.set(std::string(kLabels), std::move(numbers));
      return made;
    };
  }
  std::vector<PaddedField> padded(bool /*has_labels*/) const override { return {}; }

  Loss loss_of(const Variable& outputs, const Batch& batch) override {
    if (has_classes()) return class_loss(outputs, batch, kRowWeight);
    return {mean(square(sub(outputs, Variable(batch[kLabels]))))};
  }

 private:
  Json told_class(std::span<const double> chances) {
    const std::vector<std::string>& names = classes()->names();
    Json probabilities = Json::object();
    for (std::size_t i = 0; i < names.size(); ++i) probabilities[names[i]] = chances[i];
    const auto best = std::ranges::max_element(chances) - chances.begin();
    return {{"label", names[static_cast<std::size_t>(best)]}, {"probabilities", probabilities}};
  }
  Json told_numbers(std::span<const double> numbers) const {
    if (numbers.size() == 1) return {{"value", numbers.front()}};
    Json values = Json::object();
    for (std::size_t i = 0; i < numbers.size(); ++i) values[form().labels[i]] = numbers[i];
    return {{"values", values}};
  }
};

std::vector<KeyRow> sequence_keys() {
  std::vector<KeyRow> rows = {
      {.key = kProblem,
       .type = KeyType::choice,
       .standard = kClassification,
       .help = "One of several classes, learnt by cross-entropy; or numbers, one for each column of data.label, learnt "
               "by squared differences.",
       .choices = "classification|regression",
       .on_resume = ResumeRule::refuses,
       .known_as = "problem_type"}};
  for (const KeyRow& row : label_keys({kProblem, kClassification})) rows.push_back(row);
  rows.push_back(label_metrics_key());
  for (const KeyRow& row : model_keys(ModelKind::encoder, "bert")) rows.push_back(row);
  for (const KeyRow& row : text_record_keys({.text = "[text]",
                           .text_help = "The column or field of the text, or the two of a pair of texts.",
                           .label = "[label]",
                           .label_help = "The column or field of the class; of a regression those of the numbers."}))
    rows.push_back(row);
  return rows;
}

// One output without a problem is a regression, as transformers has it.
std::string sequence_of_hub(const std::string& folder) {
  return label_task_of_hub(folder, "ForSequenceClassification", [](const HubLabels& labels) -> HubSections {
    const std::string names = Json(labels.names).dump();
    if (labels.has_classes && labels.names.size() > 1)
      return {concat("type: sequence_classification, classes: ", names), {}};
    return {"type: sequence_classification, problem: regression", concat("label: ", names)};
  });
}

}  // namespace

TaskEntry sequence_classification_task() {
  TaskEntry entry = task_entry<SequenceTask>("sequence_classification",
                                             "a class, or numbers, of a text or a pair of texts", sequence_keys());
  entry.complain = [](const Settings& settings) {
    return complain_of_labels(settings, settings.text(kProblem) == kClassification);
  };
  entry.of_hub = sequence_of_hub;
  entry.example =
      "task: {type: sequence_classification, metrics: [accuracy, f1_macro]}\n"
      "model: {type: bert, layers: 1, heads: 4, width: 128, block: 64, dropout: 0.3}\n"
      "data: {path: reviews.tsv, text: [review], label: [stars], tokenizer: tokenizer.json}\n";
  return entry;
}

}  // namespace keel
