#include "keel/tasks/label_task.h"

#include <algorithm>
#include <set>
#include <utility>

#include "keel/autograd/elementwise.h"
#include "keel/autograd/reduce.h"
#include "keel/data/token_batch.h"
#include "keel/data/walk.h"
#include "keel/runtime/error.h"
#include "keel/runtime/json_file.h"
#include "keel/tasks/metrics/values.h"
#include "keel/tasks/word_dropout.h"

namespace keel {
namespace {

constexpr const char *kHubConfig = "config.json", *kKeptClasses = "classes.json";
constexpr std::int64_t kLengthWindow = 50;  // steps
// f32 (rows, ..., classes): what each class's negative logarithm counts, of weighted classes; and the weight of it.
constexpr const char *kShares = "class_shares", *kShareWeight = "class_weight", *kWeightedTerm = "weighted_loss";

// id2label of a config.json, in the order of its numbers. Without one there are two classes, as transformers has it.
std::vector<std::string> classes_of_config(const std::string& path) {
  const Json config = read_json_file(path);
  const Json* names = config.find("id2label");
  std::vector<std::string> classes;
  if (names == nullptr || !names->is_object()) return {"LABEL_0", "LABEL_1"};
  for (std::size_t i = 0; i < names->members().size(); ++i) {
    const Json* name = names->find(std::to_string(i));
    KEEL_CHECK(name != nullptr && name->is_string(), "'", path, "': id2label has no text for the number ", i);
    classes.push_back(name->string());
  }
  return classes;
}

std::shared_ptr<const ClassLabels> class_labels(std::vector<std::string> names, const std::string& place) {
  try {
    return std::make_shared<const ClassLabels>(std::move(names));
  } catch (const Error& error) { throw Error(concat(place, ": "), error); }
}

// The weight that counts labels, and of weighted classes the shares.
Collator counting(Collator rows, std::int64_t classes, std::vector<double> weights, double smoothing) {
  return [rows = std::move(rows), classes, weights = std::move(weights), smoothing](
             std::span<const CollatedRow> examples, const CollateInfo& info, Batch& batch) {
    rows(examples, info, batch);
    const Tensor& field = batch[kLabels];
    const std::vector<std::int64_t> labels = whole_values(field);
    batch.set_weight(std::string(kLabels), static_cast<double>(labels.size()) -
                                               static_cast<double>(std::ranges::count(labels, kIgnoreTarget)));
    if (weights.empty()) return;
    const auto width = static_cast<std::size_t>(classes);
    std::vector<float> shares(labels.size() * width);
    double sum = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == kIgnoreTarget) continue;
      const auto label = static_cast<std::size_t>(labels[i]);
      const double even = smoothing / static_cast<double>(classes);
      for (std::size_t c = 0; c < width; ++c)
        shares[i * width + c] = static_cast<float>(weights[label] * ((c == label ? 1 - smoothing : 0) + even));
      sum += weights[label];
    }
    Dims shape = field.shape();
    shape.push_back(classes);
    batch.set(kShares, from_values(info.context, shares, shape));
    batch.set_weight(kShareWeight, sum);
  };
}

}  // namespace

std::vector<KeyRow> label_keys(const KeyCondition& when) {
  using enum KeyType;
  return {
      {.key = "task.classes",
       .type = texts,
       .standard = "[]",
       .help = "Names of the classes, in the order of the model's outputs. []: those of model.from's config.json where "
               "they have all of the data; else those of data.path, numbers by size, others by their bytes.",
       .when_key = when.key,
       .when_values = when.values,
       .on_resume = ResumeRule::refuses},
      {.key = "task.class_weights",
       .type = numbers,
       .standard = "[]",
       .help = "What an example of each class counts in the loss, in their order; the loss is divided by the sum of "
               "what the batch's examples count. []: 1 each.",
       .low = 0,
       .when_key = when.key,
       .when_values = when.values,
       .on_resume = ResumeRule::warns},
      {.key = "task.label_smoothing",
       .type = number,
       .standard = "0",
       .help = "The share of the target that all classes have alike.",
       .low = 0,
       .high = 1,
       .when_key = when.key,
       .when_values = when.values,
       .on_resume = ResumeRule::warns,
       .high_open = true},
      // Of a regression, too.
      {.key = "task.word_dropout",
       .type = number,
       .standard = "0",
       .help = "The share of tokens in whose place training reads the token that masks, or else the unknown one; "
               "special tokens stay.",
       .low = 0,
       .high = 1,
       .on_resume = ResumeRule::warns,
       .high_open = true}};
}

KeyRow label_metrics_key() {
  return {.key = "task.metrics",
          .type = KeyType::texts,
          .standard = "[]",
          .help = "Of the validation sets (docs/metrics.md). []: accuracy; of numbers r2 and mae."};
}

std::vector<SettingsComplaint> complain_of_labels(const Settings& settings, bool has_classes) {
  std::vector<SettingsComplaint> complaints = complain_of_model(settings);
  for (SettingsComplaint& each : complain_of_text_records(settings)) complaints.push_back(std::move(each));
  const auto complain = [&](std::vector<std::string_view> keys, std::string wrong) {
    if (!wrong.empty()) complaints.push_back({std::move(keys), std::move(wrong)});
  };
  const std::vector<std::string>& metrics = settings.texts("task.metrics");
  if (!has_classes) {
    complain({"task.metrics"}, MetricList::complaint(metrics, MetricInput::numbers, 1));
    return complaints;
  }
  if (settings.texts("data.label").size() > 1)
    complain({"data.label"}, "names several columns, and classes are in one; leave the others out");
  const std::vector<std::string>& classes = settings.texts("task.classes");
  if (!classes.empty()) {
    try {
      (void)ClassLabels(classes);
    } catch (const Error& error) { complain({"task.classes"}, error.what()); }
  }
  complain({"task.metrics"},
           MetricList::complaint(metrics, MetricInput::classes, std::max<std::int64_t>(2, std::ssize(classes))));
  const std::vector<double>& weights = settings.numbers("task.class_weights");
  if (!weights.empty() && std::ranges::all_of(weights, [](double weight) { return weight == 0; }))
    complain({"task.class_weights"}, "every class counts 0, so nothing would be learnt; give one a weight above 0");
  return complaints;
}

std::string label_task_of_hub(const std::string& folder, std::string_view ending,
                              HubSections (*sections)(const HubLabels& labels)) {
  const std::string place = concat(folder, '/', kHubConfig);
  const Json config = read_json_file(place);
  const Json *classes = config.find("architectures"), *problem = config.find("problem_type");
  if (classes == nullptr || !classes->is_array() || classes->items().empty()) return {};
  const Json& name = classes->items().front();
  if (!name.is_string() || !name.string().ends_with(ending)) return {};
  const std::string learnt = problem != nullptr && problem->is_string() ? problem->string() : std::string();
  if (learnt == "multi_label_classification") return {};
  const HubSections yaml = sections({.has_classes = learnt != "regression", .names = classes_of_config(place)});
  const std::string quoted = Json(folder).dump();
  return concat("task: {", yaml.task, "}\nmodel: {from: ", quoted, "}\ndata: {path: ", quoted,
                yaml.data.empty() ? "" : ", ", yaml.data, "}\n");
}

LabelTask::LabelTask(const TaskSite& site) : site_(site), form_(record_form(site.settings)) {}

const TextRecords& LabelTask::training() {
  if (!training_) training_ = open_text_records(path(), form_, cells(), site_.progress);
  return *training_;
}

const TokenizerPtr& LabelTask::tokenizer() {
  if (!tokenizer_)
    tokenizer_ = base_.tokenizer_of(site_.settings.text("data.tokenizer"), [&] {
      std::string all;
      each_record(*training().data, path(), [&](const Example& record) { all += text_in(record); });
      return all;
    });
  return tokenizer_;
}

std::int64_t LabelTask::vocabulary() {
  // Where nothing more is to be known, the tokenizer need not be there yet.
  const bool is_known = base_.is_published() || site_.settings.integer("model.vocabulary") > 0;
  return !tokenizer_ && is_known ? 0 : tokenizer()->vocabulary_size();
}

std::vector<std::string> LabelTask::classes_of_hub() const {
  if (!base_.is_published()) return {};
  return classes_of_config(concat(base_.folder(), '/', kHubConfig));
}

std::vector<std::string> LabelTask::classes_of_data() {
  std::set<std::string> found;
  each_record(*training().data, path(), [&](const Example& record) {
    for (std::string& name : classes_in(record)) found.insert(std::move(name));
  });
  std::vector<std::string> of_hub = classes_of_hub();
  const auto has = [&](const std::string& name) { return std::ranges::find(of_hub, name) != of_hub.end(); };
  return std::ranges::all_of(found, has) ? of_hub : in_order_of_classes(found);
}

const std::shared_ptr<const ClassLabels>& LabelTask::classes() {
  if (classes_ || !has_classes()) return classes_;
  if (const std::string file = base_.run_config(); !file.empty())
    classes_ = class_labels(classes_of_config(file), concat("'", file, "': id2label"));
  else if (const std::vector<std::string>& given = site_.settings.texts("task.classes"); !given.empty())
    classes_ = class_labels(given, "task.classes");
  else classes_ = class_labels(classes_of_data(), concat("'", path(), "'"));
  const std::size_t weights = site_.settings.numbers("task.class_weights").size();
  KEEL_CHECK(weights == 0 || static_cast<std::int64_t>(weights) == classes_->size(), "task.class_weights has ", weights,
             " numbers, and there are ", classes_->size(), " classes: ", classes_->listed());
  return classes_;
}

HeadOptions LabelTask::head_of_model() {
  HeadOptions options = {.head = head(), .outputs = outputs_of_model()};
  options.labels = has_classes() ? classes()->names() : form_.labels;
  if (options.head == EncoderHead::sequence)
    options.problem = has_classes() ? HeadProblem::single_label : HeadProblem::regression;
  return options;
}

EncoderModel& LabelTask::encoder() {
  if (!model_) {
    const ModelSpecPtr shape = spec();
    model_ = shape->make_encoder(head_of_model());
    base_.adapt(*model_, *shape, true);
    model_->recompute = site_.settings.flag("model.recompute");
  }
  return *model_;
}

std::vector<std::string> LabelTask::varying(bool has_labels) const {
  std::vector<std::string> fields = {std::string(kInputIds), std::string(kTokenTypes)};
  for (const PaddedField& field : padded(has_labels)) fields.push_back(field.name);
  const bool has_shares =
      has_labels && has_classes() && !site_.settings.numbers("task.class_weights").empty() && !padded(true).empty();
  if (has_shares) fields.emplace_back(kShares);
  return fields;
}

Collator LabelTask::collator(bool has_labels) {
  PadOptions options = {.fields = {{std::string(kInputIds)}, {std::string(kTokenTypes)}},
                        .multiple = site_.settings.integer("data.pad_multiple")};
  KEEL_CHECK(positions() % options.multiple == 0, "data.pad_multiple is ", options.multiple,
             ", which does not divide the longest sequence of ", positions(),
             " tokens (model.block); choose one that does");
  for (PaddedField& field : padded(has_labels)) options.fields.push_back(std::move(field));
  if (!has_labels || !has_classes()) return pad(options);
  return counting(pad(options), classes()->size(), site_.settings.numbers("task.class_weights"),
                  site_.settings.number("task.label_smoothing"));
}

DatasetPtr LabelTask::examples_of(const TextRecords& records, const std::string& path, bool has_labels) {
  const auto reading = std::make_shared<const Reading>(Reading{.tokenizer = tokenizer(),
                                                               .classes = classes(),
                                                               .texts = records.texts,
                                                               .labels = form_.labels,
                                                               .limit = text_limit(site_.settings, positions()),
                                                               .token_types = encoder().token_types(),
                                                               .has_labels = has_labels});
  std::string version = concat("texts by ", tokenizer()->fingerprint(), " up to ", reading->limit.length, ' ',
                               site_.settings.text("data.truncation"));
  for (const std::string& name : records.texts) version += concat(" text ", name);
  for (const std::string& name : form_.labels) version += concat(" label ", name);
  if (has_classes())
    for (const std::string& name : classes()->names()) version += concat(" class ", name);
  return examples_of_records(
      records.data, path, [reading, make = make_example()](const Example& record) { return make(*reading, record); },
      std::move(version));
}

Data LabelTask::data() {
  (void)encoder();  // what is wrong with the model is told before anything is read
  (void)metrics();
  const DatasetPtr whole = examples_of(training(), path(), true);
  // An example that does not fit costs nothing before training begins.
  const auto read = [](const DatasetPtr& examples) {
    walk(
        *examples, [](std::int64_t, const std::vector<Example>&) {}, [](std::int64_t, std::int64_t) {});
    return examples;
  };
  read(whole);
  const Division division(division_options(site_.settings, site_.data_seed), *training().data, path());
  const DividedExamples examples = division.of(whole, [&](const std::string& file) {
    return read(examples_of(open_text_records(file, form_, cells(), site_.progress), file, true));
  });
  const Collator rows = collator(true);
  const double hidden = site_.settings.number("task.word_dropout");
  Data data = make_data(site_, examples, rows,
                        {.varying = varying(true),
                         .last = last_rows(site_.settings),
                         .length_window = site_.settings.flag("data.group_by_length") ? kLengthWindow : 0,
                         .training = hidden > 0 ? hiding_words(word_dropout(*tokenizer(), hidden), rows) : rows});
  data.files.emplace_back(kKeptClasses, has_classes() ? Json(classes()->names()).dump() + "\n" : "");
  if (has_classes()) data.note = concat(classes()->size(), " classes: ", classes()->listed());
  base_.add_files(*spec(), tokenizer(), site_.settings.text("data.tokenizer"), data, head_of_model());
  return data;
}

Task::Beginning LabelTask::beginning() {
  return base_.beginning(encoder(), *spec(),
                         has_classes()
                             ? "task.classes names the classes of the folder, in its order, or take data with "
                               "as many classes"
                             : "");
}

HubFiles LabelTask::hub_files(DType dtype) {
  return base_.hub_files(*spec(), tokenizer(), site_.settings.text("data.tokenizer"), dtype, head_of_model());
}

std::string LabelTask::why_not_recordable() const {
  return "texts are filled up to the longest of a batch, which is another one in each step";
}

const MetricList& LabelTask::metrics() {
  if (!metrics_) {
    std::vector<std::string> names = site_.settings.texts("task.metrics");
    if (names.empty())
      names = has_classes() ? std::vector<std::string>{"accuracy"} : std::vector<std::string>{"r2", "mae"};
    metrics_.emplace(names, has_classes() ? MetricInput::classes : MetricInput::numbers, outputs_of_model());
  }
  return *metrics_;
}

void LabelTask::make_metrics(std::string_view /*set*/, Metrics& metrics) { this->metrics().make(metrics); }

void LabelTask::validation_step(const Batch& batch, Forward& pass, Metrics& metrics) {
  const Variable said = outputs(batch, pass);
  feed(metrics, loss_of(said, batch), batch);
  this->metrics().feed(metrics, {.outputs = said.value(), .targets = batch[kLabels], .examples = batch.examples()});
}

std::shared_ptr<const BatchSource> LabelTask::prediction_data(const std::string& path) {
  const TextRecords records = open_text_records(path, form_, LabelCells::none);
  return in_order(site_, examples_of(records, path, false), collator(false), varying(false));
}

Variable LabelTask::outputs(const Batch& batch, Forward& pass) {
  const EncoderModel& model = encoder();
  const EncoderInput input = {.tokens = batch[kInputIds],
                              .types = model.token_types() > 1 ? batch[kTokenTypes] : Tensor(),
                              .lengths = batch[kLengths]};
  return cast(model(input, pass), DType::f32);
}

Loss LabelTask::class_loss(const Variable& logits, const Batch& batch, std::string_view weight) const {
  if (!batch.has(kShares))
    return {cross_entropy(logits, batch[kLabels], {.label_smoothing = site_.settings.number("task.label_smoothing")}),
            std::string(weight)};
  Loss loss;
  loss.add_sum(kWeightedTerm, scale(sum(mul(log_softmax(logits), Variable(batch[kShares]))), -1), kShareWeight);
  return loss;
}

}  // namespace keel
