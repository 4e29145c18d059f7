// configs.json of generic_trainer.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/trainer/foreign/reading.h"

namespace keel::foreign {
namespace {

// "<class 'torch.optim.adam.Adam'>" is Adam.
std::string class_name(std::string_view text) {
  if (text.starts_with("<class '") && text.ends_with("'>")) text = text.substr(8, text.size() - 10);
  return std::string(text.substr(text.rfind('.') + 1));
}

void read_class(ForeignReading& reading, const ForeignEntry& entry) {
  reading.put("optimizer.type", class_name(entry.value.text), entry);
}
void read_options(ForeignReading& reading, const ForeignEntry& entry) {
  for (const ForeignEntry& each : reading.entries_of(entry))
    reading.put(concat("optimizer.", each.key.substr(each.key.rfind('.') + 1)), each.value, each);
}
void read_process_batch(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto rows = reading.whole_number(entry)) reading.state(reading.facts().micro, *rows, entry);
}
// Times the number of processes.
void read_process_rate(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto rate = reading.number(entry)) reading.put("optimizer.lr", yaml_of(*rate * reading.ranks()), entry);
}
void read_amp(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto is_on = reading.flag(entry))
    reading.facts().precision = {*is_on ? Strategy::Precision::fp16 : Strategy::Precision::fp32, entry};
}
void read_cpu_only(ForeignReading& reading, const ForeignEntry& entry) {
  if (reading.flag(entry).value_or(false)) reading.put("device", "cpu", entry);
}
// The folder where it was started, unless somebody says another one.
void read_save_folder(ForeignReading& reading, const ForeignEntry& entry) {
  if (entry.value.text == "." || entry.value.text.empty())
    return reading.tell(entry, ForeignTold::Verdict::taken, "its default; keel's is a folder of the run's own");
  reading.put("run", entry.value, entry);
}
void read_checkpoint(ForeignReading& reading, const ForeignEntry& entry) {
  if (!entry.value.text.empty()) reading.put("resume", entry.value, entry);
}

constexpr std::string_view kModels =
    "keel has none of its models yet: networks of linear layers and convolutions; say what is trained: task, model, "
    "data";

// A key about predictions, which is kept until all are known.
template <std::optional<ForeignEntry> ForeignFacts::*fact>
void read_of_heads(ForeignReading& reading, const ForeignEntry& entry) {
  using Verdict = ForeignTold::Verdict;
  const std::string_view heads = reading.key_of(KeyRole::heads);
  if (!heads.empty() && !reading.user_says(heads)) {
    reading.facts().*fact = entry;
    reading.tell(entry, Verdict::mapped, std::string(heads));
  } else if (reading.user_says_one_of("task|model|data")) {
    reading.tell(entry, Verdict::answered, "your own task, model or data stands instead");
  } else {
    reading.refuse(entry, std::string(kModels));
  }
}

// What is said of each prediction: a list in their order, or a mapping by name.
std::vector<YamlNode> each_of(ForeignReading& reading, const ForeignEntry& entry, const std::vector<YamlNode>& heads) {
  std::vector<YamlNode> values = entry.value.items;
  if (entry.value.kind == YamlNode::Kind::scalar) values = {entry.value};
  for (const YamlNode& head : heads)
    for (const YamlEntry& each : entry.value.entries)
      if (each.key == head.entries[0].value.text) values.push_back(each.value);
  if (values.size() == heads.size()) return values;
  reading.refuse(entry, concat("says something of ", values.size(), " predictions, and there are ", heads.size(),
                               "; a function of all of them, or of none, is a task of your own"));
  return {};
}

void add_to_heads(ForeignReading& reading, const std::optional<ForeignEntry>& entry, std::string_view key,
                  std::vector<YamlNode>& heads, const std::function<std::string(const YamlNode& value)>& word) {
  if (!entry) return;
  const std::vector<YamlNode> values = each_of(reading, *entry, heads);
  for (std::size_t i = 0; i < values.size(); ++i)
    heads[i].entries.push_back({std::string(key), entry->line, YamlNode::scalar(word(values[i]), entry->line)});
}

// "cls" and "regr" in [["digit", "cls"], ["angle", "regr"]]; the names are those of columns of keel's data.
std::vector<YamlNode> heads_of(ForeignReading& reading, const ForeignEntry& entry) {
  std::vector<YamlNode> heads;
  for (const YamlNode& pair : entry.value.items) {
    const std::string type = pair.items.size() == 2 ? pair.items[1].text : "";
    if (type != "cls" && type != "regr") {
      reading.refuse(entry, "expects names with a type, cls or regr, as in [[digit, cls], [angle, regr]]");
      return {};
    }
    YamlNode& head = heads.emplace_back(YamlNode::of(YamlNode::Kind::mapping, entry.line));
    head.entries.push_back({"name", entry.line, YamlNode::scalar(pair.items[0].text, entry.line)});
    head.entries.push_back(
        {"type", entry.line, YamlNode::scalar(type == "cls" ? "classification" : "regression", entry.line)});
  }
  if (heads.empty()) reading.refuse(entry, "names no prediction");
  return heads;
}

constexpr std::pair<std::string_view, std::string_view> kLosses[] = {{"MSELoss", "mse"},
                                                                     {"L1Loss", "mae"},
                                                                     {"SmoothL1Loss", "huber"},
                                                                     {"HuberLoss", "huber"},
                                                                     {"CrossEntropyLoss", "cross_entropy"}};

void make_heads(ForeignReading& reading) {
  const ForeignFacts& facts = reading.facts();
  if (!facts.heads) {
    for (const auto& each : {facts.losses, facts.weights})
      if (each)
        reading.refuse(*each, concat("nothing names predictions; give ", reading.key_of(KeyRole::heads),
                                     ", or pred_names_and_types"));
    return;
  }
  std::vector<YamlNode> heads = heads_of(reading, *facts.heads);
  if (heads.empty()) return;
  add_to_heads(reading, facts.losses, "loss", heads, [&](const YamlNode& value) {
    const std::string name = class_name(value.text);
    for (const auto& [theirs, keels] : kLosses)
      if (theirs == name) return std::string(keels);
    reading.refuse(*facts.losses,
                   concat("keel's heads have no loss '", name, "'; give ", reading.key_of(KeyRole::heads)));
    return std::string("auto");
  });
  // Of a single function its trainer counts no weights.
  const bool is_one = facts.losses && facts.losses->value.kind == YamlNode::Kind::scalar;
  if (facts.weights && is_one)
    reading.tell_again(*facts.weights, "counts for several functions, and loss_function is one");
  else add_to_heads(reading, facts.weights, "weight", heads, [](const YamlNode& value) { return value.text; });
  YamlNode list = YamlNode::of(YamlNode::Kind::list, facts.heads->line);
  list.items = std::move(heads);
  reading.put(reading.key_of(KeyRole::heads), std::move(list), *facts.heads);
}

// Its schedule is always CyclicLR, up in 6 epochs.
void finish_configs(ForeignReading& reading) {
  make_heads(reading);
  const ForeignEntry whole = reading.whole();
  if (!reading.has("optimizer.type")) reading.put("optimizer.type", "Adam", whole);
  if (!reading.has("optimizer.lr")) reading.put("optimizer.lr", yaml_of(1e-3 * reading.ranks()), whole);
  if (!reading.facts().micro) reading.facts().micro = {64, whole};
  if (!reading.has("clip")) reading.put("clip", "0", whole);
  if (!reading.has("data.last")) put_last_rows(reading, whole, true);
  if (!reading.facts().epochs && !reading.has("steps")) reading.put("epochs", "60", whole);
  if (reading.user_says("scheduler.type") && reading.own("scheduler.type") != "CyclicLR") return;
  if (!reading.has("scheduler.step_size_up"))
    return reading.refuse(whole,
                          "its learning rate always cycles in 12 epochs, and nothing says how many steps those "
                          "have; give scheduler.step_size_up=STEPS of 6 epochs, or another scheduler.type");
  reading.put("scheduler.type", "CyclicLR", whole);
  double rate = 0;
  YamlNode lr = YamlNode::scalar(reading.value_of("optimizer.lr"), 1);
  if (const auto read = reading.number({whole.file, "learning_rate_per_process", 1, lr})) rate = *read;
  if (!reading.has("scheduler.base_lr")) reading.put("scheduler.base_lr", yaml_of(0.1 * rate), whole);
  if (!reading.has("scheduler.mode")) reading.put("scheduler.mode", "triangular2", whole);
  if (!reading.has("scheduler.cycle_momentum")) reading.put("scheduler.cycle_momentum", "false", whole);
}

constexpr std::string_view kConfigsOff = "false|False|none|None|null|0|\"\"|[]|{}";
constexpr std::string_view kLater = "of prediction, not of training";

constexpr ForeignRow kConfigsRows[] = {
    taken("config_class", "says which of its classes the section is"),
    answered(refused("model_class", kModels), "task|model"),
    answered(refused("model_params", kModels), "task|model"),
    answered(refused("dataset", "keel has no data sets of Python classes; give data"), "task|data"),
    answered(refused("training_dataset", "keel has no data sets of Python classes; give data"), "task|data"),
    answered(refused("validation_dataset", "keel has no data sets of Python classes; give data"), "task|data"),
    answered(refused("test_dataset", "keel has no data sets of Python classes; give data"), "task|data"),
    answered(refused("dataset_creator_name", "keel has no data sets of Python classes; give data"), "task|data"),
    mapped("pred_names_and_types", KeyRole::heads,
           "cls is a classification, regr a regression; names are those of columns",
           read_of_heads<&ForeignFacts::heads>),
    answered(refused("data_label_separation_index", "keel's data has columns of names; give data"), "task|data"),
    taken("task_type", "names the accuracy that is told; heads have metrics by their types"),
    mapped("loss_function", "", read_of_heads<&ForeignFacts::losses>,
           "`loss` of the heads: MSELoss, L1Loss, SmoothL1Loss, HuberLoss, CrossEntropyLoss"),
    mapped("loss_weights", "", read_of_heads<&ForeignFacts::weights>, "`weight` of the heads"),
    taken("debug", "changes no result"),
    mapped("cpu_only", "device", read_cpu_only, "cpu"),
    mapped("random_seed", "seed"),
    mapped("batch_size_per_process", "batch.micro|batch.global", read_process_batch, "times ranks"),
    epochs("num_epochs"),
    mapped("learning_rate_per_process", "optimizer.lr", read_process_rate, "times ranks"),
    mapped("optimizer", "optimizer.type", read_class),
    mapped("optimizer_params", "", read_options, "the optimizer's options by PyTorch's names"),
    answered(refused("multi_optimizer_param_dicts",
                     "its groups name attributes of a Python model; give optimizer.groups", kConfigsOff),
             "optimizer.groups"),
    mapped("model_save_dir", "run", read_save_folder, "the default, ., is keel's own"),
    mapped("checkpoint_dir", "resume", read_checkpoint),
    refused("pretrained_model_path", "keel does not read its .pth files", kConfigsOff),
    refused("load_pretrained_encoder_only", "keel does not read its .pth files", kConfigsOff),
    refused("load_pretrained_classifer", "keel does not read its .pth files", kConfigsOff),
    mapped("validation_ratio", KeyRole::validation_fraction),
    mapped("num_workers", "data.workers"),
    taken("pin_memory", "keel's batches are in pinned memory"),
    mapped("automatic_mixed_precision", "precision", read_amp, "fp16 or fp32"),
    refused("save_onnx", "keel get writes safetensors", kConfigsOff),
    taken("find_unused_parameters", "keel's gradient of one is zero; see sharding.strict"),
    taken("parallelization_type", "keel launch starts ranks on one machine or several"),
    taken("curriculum_learning_rate", "its trainer stores it and never uses it"),
    refused("post_training_epoch_hook", "a hook is code: write a task of your own", kConfigsOff),
    refused("post_validation_epoch_hook", "a hook is code: write a task of your own", kConfigsOff),
    refused("post_test_epoch_hook", "a hook is code: write a task of your own", kConfigsOff),
    taken("prediction_output_path", kLater),
    taken("prediction_postprocessor", kLater),
};

}  // namespace

const ForeignKind kConfigsJson = {
    .name = "configs",
    .title = "configs.json of generic_trainer",
    .signs = "config_class|batch_size_per_process|learning_rate_per_process|pred_names_and_types",
    .about =
        "Sections nest by `config_class`, and keys count wherever they stand. Its learning rate is multiplied by the "
        "number of ranks, and always follows CyclicLR (`triangular2`, from a tenth of the rate up to it in 6 epochs), "
        "for which `scheduler.step_size_up` is asked. It never clips, and drops an epoch's last rows where they fill "
        "no step (`data.last: drop`). Predictions by name are heads of a model; its model is a Python class, and its "
        "data set another, so give what the task's sections `model` and `data` ask for.",
    .rows = kConfigsRows,
    .finish = finish_configs,
    .is_nested = true,
    .aside_signs = "prediction_output_path|prediction_postprocessor",
    .aside_keys =
        "config_class|pretrained_model_path|batch_size_per_process|prediction_output_path|prediction_postprocessor",
    .task_role = KeyRole::heads};

}  // namespace keel::foreign
