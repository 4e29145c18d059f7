#include "keel/tasks/supervised_keys.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "keel/data/csv.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/heads.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/tasks/names.h"
#include "keel/tasks/supervised_columns.h"

namespace keel {
namespace {

constexpr double kMostWeight = 1e9;  // whose losses fp32 holds

// "a|b" of a list's names.
template <class Entry>
std::string choices_of(const std::vector<Entry>& entries, std::string_view first = {}) {
  std::string all(first);
  for (const Entry& entry : entries) all += concat(all.empty() ? "" : "|", entry.name);
  return all;
}

template <class Entry>
std::string summaries_of(const std::vector<Entry>& entries) {
  std::string all;
  for (const Entry& entry : entries) all += concat(all.empty() ? "" : "; ", entry.name, ": ", entry.summary);
  return all;
}

const KeyParts& head_keys() {
  using enum KeyType;
  static const std::string choices = choices_of(head_losses(), "auto"),
                           help = concat("Means over rows. ", summaries_of(head_losses()),
                                         ". auto: mse, or cross_entropy.");
  static const KeyParts kept = {
      "a head",
      {{.key = "name",
        .type = text,
        .help = "Letters, digits and _: the name of its loss, and what its metrics and predictions begin with."},
       {.key = "type",
        .type = choice,
        .standard = "regression",
        .help = "Numbers, or one of several classes.",
        .choices = "regression|classification"},
       {.key = "columns",
        .type = texts,
        .standard = "[]",
        .help = "Of the data: numbers to learn, or one column of classes, or several that are 1 for the class and else "
                "0. p0..p9 is ten. []: the one of its name."},
       {.key = "classes",
        .type = integer,
        .standard = "0",
        .help = "Classes are the numbers from 0 to this less 1. 0: the different words or numbers that the column has.",
        .low = 0,
        .high = 1048576},
       {.key = "loss", .type = choice, .standard = "auto", .help = help, .choices = choices},
       {.key = "weight",
        .type = number,
        .standard = "1",
        .help = "Of its loss in the sum that is trained.",
        .low = 0,
        .high = kMostWeight},
       {.key = "label_smoothing",
        .type = number,
        .standard = "0",
        .help = "Of cross_entropy: the share of the target that all classes have alike.",
        .low = 0,
        .high = 1,
        .high_open = true},
       {.key = "scale",
        .type = choice,
        .standard = "none",
        .help = "Of regression; standard: the model learns numbers less their mean by their deviation in the training "
                "data. Metrics and predictions are in the data's own units.",
        .choices = "none|standard"},
       {.key = "metrics",
        .type = texts,
        .standard = "[]",
        .help = "Of the validation set (docs/metrics.md). []: r2 and mae, or accuracy."}}};
  return kept;
}

const KeyParts& regularizer_keys() {
  using enum KeyType;
  static const std::string choices = choices_of(regularizers()),
                           help = concat("Means over rows and outputs. ", summaries_of(regularizers()), ".");
  static const KeyParts kept = {"a regularizer",
                                {{.key = "head", .type = text, .help = "The head whose outputs it keeps small."},
                                 {.key = "type", .type = choice, .help = help, .choices = choices},
                                 {.key = "weight",
                                  .type = number,
                                  .standard = "1",
                                  .help = "In the sum that is trained.",
                                  .low = 0,
                                  .high = kMostWeight}}};
  return kept;
}

// Names that keel makes of a head's, with what they are: of metrics, and in predictions.
std::vector<std::pair<std::string, std::string>> names_made_of(const SupervisedHead& head) {
  std::vector<std::pair<std::string, std::string>> made;
  for (const std::string& metric : head.metrics) made.emplace_back(concat(head.name, '_', metric), "metric");
  if (head.has_classes()) made.emplace_back(head.name + "_probability", "probability in predictions");
  return made;
}

// Where a term's name is one that keel makes of a head's; empty: nowhere.
std::string clash_of(std::string_view term, const std::vector<SupervisedHead>& heads) {
  for (const SupervisedHead& head : heads)
    for (const auto& [name, what] : names_made_of(head)) {
      // Those of each class, as in sky_f1_per_class_0, and of pairs of them.
      const bool is_of_a_class = term.size() > name.size() + 1 && term.starts_with(name) && term[name.size()] == '_' &&
                                 term.find_first_not_of("0123456789_", name.size()) == std::string_view::npos;
      if (term == name || is_of_a_class)
        return concat("the head '", head.name, "' has a ", what, " of this name; call one of them otherwise");
    }
  return "";
}

std::string complaint_about_metrics(const SupervisedHead& head) {
  // How many classes the data has, a metric is asked before anything is made; here, whether it is there at all.
  return head.has_classes()
             ? MetricList::complaint(head.metrics, MetricInput::classes, std::max<std::int64_t>(2, head.classes))
             : MetricList::complaint(head.metrics, MetricInput::numbers, 1);
}

// What is wrong with names of columns, of which one may be a range; empty: nothing.
std::string complaint_about_columns(const std::vector<std::string>& columns) {
  std::set<std::string> seen;
  try {
    for (const std::string& name : expanded_columns(columns))
      if (!seen.insert(name).second)
        return concat("the column '", printable(name, 64), "' is named twice; leave one out");
  } catch (const Error& error) { return error.what(); }
  return "";
}

// Empty: nothing.
std::string complaint_about_head(const SupervisedHead& head, const std::vector<SupervisedHead>& earlier) {
  const std::string name = concat("head '", printable(head.name, 64), "'");
  if (!is_name(head.name)) return concat(name, ": a name is letters, digits and _");
  if (head.name == kInputs)
    return concat(name,
                  ": batches have what the model reads under this name; name it otherwise, and its column by columns");
  if (is_record_name(head.name))
    return concat(name, ": records have keel's own number of this name; name it otherwise, and its column by columns");
  if (std::ranges::find(earlier, head.name, &SupervisedHead::name) != earlier.end())
    return concat("two heads are named '", head.name, "'; name each otherwise, and its column by columns");
  if (head.loss->type != head.type)
    return concat(name, ": the loss ", head.loss->name, " is for ",
                  head.has_classes() ? "regression" : "classification", "; leave loss out, or give type");
  if (head.has_classes() && head.is_scaled) return concat(name, ": scale is for regression");
  if (head.smoothing > 0 && !head.has_classes()) return concat(name, ": label_smoothing is for classification");
  if (head.classes > 0 && !head.has_classes()) return concat(name, ": classes are for classification");
  if (head.classes == 1) return concat(name, ": one class is nothing to learn; give 2 or more");
  if (const std::string metrics = complaint_about_metrics(head); !metrics.empty()) return concat(name, ": ", metrics);
  if (const std::string columns = complaint_about_columns(head.columns); !columns.empty())
    return concat(name, ": ", columns);
  return "";
}

}  // namespace

std::vector<KeyRow> supervised_keys() {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = "task.regularizers",
       .type = parts,
       .standard = "[]",
       .help = "Terms of the loss on outputs alone, as in [{head: angle, type: square, weight: 0.01}].",
       .parts = &regularizer_keys()},
      {.key = "model.trunk",
       .type = text,
       .standard = "dense 64 relu; dense 64 relu",
       .help = "Layers that all heads share, one after another: dense WIDTH [ACTIVATION], an activation, "
               "layernorm, rmsnorm, dropout PROBABILITY. Each head is a linear layer on what they give; none: on "
               "the inputs.",
       .known_as = "hidden_layer_sizes|hidden|layers",
       .asked = true},
      {.key = "model.heads",
       .type = parts,
       .help = "What is learnt, as in [{name: digit, type: classification}, {name: angle, weight: 0.5}].",
       .known_as = "pred_names_and_types",
       .parts = &head_keys(),
       .role = KeyRole::heads},
      {.key = "model.recompute",
       .type = flag,
       .standard = "false",
       .help = "Keep only the inputs of the trunk's dense layers, and compute what follows each again during "
               "backward: the same bits in less memory.",
       .on_resume = ResumeRule::ignores,
       .known_as = "activation_checkpointing|gradient_checkpointing",
       .role = KeyRole::recompute},
      {.key = "data.path",
       .type = path,
       .help = "A table (.csv, .tsv), JSON lines (.jsonl) or a columnar file, each row, object or example of which "
               "is one to learn from.",
       .known_as = "file|training_dataset",
       .role = KeyRole::data_file},
      {.key = "data.inputs",
       .type = texts,
       .standard = "[]",
       .help = "Columns or fields of numbers that the model reads; p0..p63 is 64. []: all that are numbers, in the "
               "file's order, but the heads'."},
      {.key = "data.scale",
       .type = choice,
       .standard = "standard",
       .help = "standard: inputs less their mean by their deviation in the training data; none: as they are.",
       .choices = "standard|none"}};
  for (const KeyRow& row : example_keys()) rows.push_back(row);
  return rows;
}

std::vector<SettingsComplaint> complain_of_supervised(const Settings& settings) {
  std::vector<SettingsComplaint> complaints = complain_of_validation(settings);
  std::vector<SupervisedHead> heads;
  const auto complain = [&](std::vector<std::string_view> keys, std::string wrong) {
    if (!wrong.empty()) complaints.push_back({std::move(keys), std::move(wrong)});
  };
  for (const Settings& part : settings.parts("model.heads")) {
    SupervisedHead head = head_options(part);
    complain({"model.heads"}, complaint_about_head(head, heads));
    heads.push_back(std::move(head));
  }
  if (heads.empty()) complain({"model.heads"}, "there are none; name at least one, as in [{name: price}]");
  else if (std::ranges::all_of(heads, [](const SupervisedHead& head) { return head.weight == 0; }))
    complain({"model.heads"}, "every head has the weight 0, so none would learn; give one a weight above 0");
  for (const SupervisedHead& head : heads)
    if (const std::string clash = clash_of(head.name, heads); !clash.empty())
      complain({"model.heads"}, concat("head '", head.name, "': ", clash));
  complain({"data.inputs"}, complaint_about_columns(settings.texts("data.inputs")));
  std::vector<std::string> terms;
  for (const Settings& part : settings.parts("task.regularizers")) {
    const ChosenRegularizer chosen = chosen_regularizer(part);
    if (std::ranges::find(heads, chosen.head, &SupervisedHead::name) == heads.end()) {
      complain({"task.regularizers", "model.heads"},
               concat("there is no head '", printable(chosen.head, 64), "'; name one of model.heads"));
      continue;
    }
    const std::string term = chosen.term();
    std::string wrong = clash_of(term, heads);
    if (std::ranges::find(heads, term, &SupervisedHead::name) != heads.end())
      wrong = "a head has this name; name it otherwise, and its column by columns";
    if (std::ranges::find(terms, term) != terms.end()) wrong = "is there twice; add up the weights in one";
    if (!wrong.empty()) complain({"task.regularizers", "model.heads"}, concat("the term '", term, "': ", wrong));
    terms.push_back(term);
  }
  return complaints;
}

}  // namespace keel
