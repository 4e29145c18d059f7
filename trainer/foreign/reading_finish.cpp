// What keys say together: the numbers of a batch, the strategy, and the tree of keel's keys.

#include <algorithm>

#include "keel/config/schema_row.h"
#include "keel/runtime/error.h"
#include "keel/trainer/foreign/reading.h"

namespace keel {
namespace {

constexpr std::string_view kStageNames[] = {"", "ddp", "zero1", "zero2", "zero3"};

std::optional<std::int64_t> rows_in(const std::optional<std::string>& text) {
  if (!text || text->empty() || text->size() > 8 || text->find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(*text);
}

// The entry of the section, which is made where there is none.
YamlNode& section_in(YamlNode& root, std::string_view name, int line) {
  for (YamlEntry& entry : root.entries)
    if (entry.key == name) return entry.value;
  return root.entries.emplace_back(YamlEntry{std::string(name), line, YamlNode::of(YamlNode::Kind::mapping, line)})
      .value;
}

}  // namespace

void ForeignReading::make_length() {
  if (!facts_.epochs) return;
  ForeignTold& told = *told_of(*facts_.epochs);
  if (has("steps")) {
    told.verdict = user_says("steps") ? ForeignTold::Verdict::answered : ForeignTold::Verdict::taken;
    told.text = "steps are given, and count";
  } else if (!request_.schema.is_key("epochs")) {
    refuse(*facts_.epochs, "keel has no epochs yet; give steps=N");
  } else {
    told.text = concat("epochs: ", told.value);
    put("epochs", facts_.epochs->value, *facts_.epochs);
  }
}

// global = micro * accumulation * ranks, of which any two give the third.
void ForeignReading::make_batch() {
  const auto &global = facts_.global, &micro = facts_.micro, &accumulation = facts_.accumulation;
  if (!global && !micro && !accumulation) return;
  const ForeignEntry& from = micro ? micro->from : global ? global->from : accumulation->from;
  const std::optional<std::int64_t> own_micro = rows_in(own("batch.micro"));
  const std::int64_t times = accumulation ? accumulation->value : 1;
  const std::int64_t among = times * ranks();
  if (among < 1) return refuse(accumulation->from, "must be at least 1");
  if ((micro && micro->value < 1) || (global && global->value < 1)) return refuse(from, "must be at least 1");
  std::optional<std::int64_t> rows = micro ? std::optional(micro->value) : own_micro;
  if (micro && global && accumulation && micro->value * among != global->value)
    return refuse(global->from, concat("is not ", micro->from.key, " * ", accumulation->from.key, " * ranks, which is ",
                                       micro->value, " * ", times, " * ", ranks(), " = ", micro->value * among));
  if (global && (!rows || !accumulation)) {
    const std::int64_t parts = rows ? *rows * ranks() : among;
    if (global->value % parts != 0)
      return refuse(global->from, concat(global->value, " cannot be shared out: ", rows ? "micro-batches of " : "",
                                         rows ? concat(*rows, " rows on ") : concat(times, " micro-batches on "),
                                         ranks(), " rank", ranks() == 1 ? "" : "s"));
    if (!rows) rows = global->value / among;
  }
  if (!rows && times == 1) return;
  if (!rows) return refuse(accumulation->from, "nothing says how many rows a micro-batch has; give batch.micro=ROWS");
  put("batch.global", std::to_string(global ? global->value : *rows * among), global ? global->from : from);
  if (micro || global) put("batch.micro", std::to_string(*rows), from);
  const std::string made = concat("batch.global: ", global ? global->value : *rows * among);
  for (const auto& each : {global, micro, accumulation})
    if (each && each->from.key != (global ? global : micro ? micro : accumulation)->from.key)
      tell_that_it_makes(each->from, made);
}

bool ForeignReading::is_fp16() const {
  if (facts_.precision) return facts_.precision->value == Strategy::Precision::fp16;
  if (const auto precision = own("precision")) return *precision == "fp16";
  const auto strategy = own("strategy");
  return strategy && parse_strategy(*strategy).precision == Strategy::Precision::fp16;
}

void ForeignReading::make_strategy() {
  const auto& stage = facts_.stage;
  const auto& precision = facts_.precision;
  const auto put_place = [&](const auto& place, std::string_view key) {
    if (place && place->value != Strategy::Offload::none)
      put(key, std::string(name_of(residence_of(place->value))), place->from);
  };
  put_place(facts_.optimizer, "sharding.offload_optimizer");
  put_place(facts_.parameter, "sharding.offload_parameters");
  const auto is_in_files = [](const auto& place) { return place && place->value == Strategy::Offload::nvme; };
  if (facts_.folder && (is_in_files(facts_.optimizer) || is_in_files(facts_.parameter)))
    put("sharding.offload_folder", facts_.folder->value, facts_.folder->from);
  const bool user_has_strategy = user_says("strategy");
  if (stage && stage->value != Strategy::Stage::none && !user_has_strategy)
    put("strategy", std::string(kStageNames[static_cast<std::size_t>(stage->value)]), stage->from);
  const std::string own_strategy = own("strategy").value_or("");
  const bool user_has_precision = !own_strategy.empty() && read_strategy(own_strategy).says_precision;
  if (precision && !(user_has_strategy && user_has_precision))
    put("precision", std::string(name_of(precision->value)), precision->from);
}

void ForeignReading::make_trees() {
  for (const Put& put : puts_) {
    auto tree = std::find_if(out_.trees.begin(), out_.trees.end(),
                             [&](const NamedTree& each) { return each.name == put.from.file; });
    if (tree == out_.trees.end())
      tree = out_.trees.insert(out_.trees.end(), {put.from.file, YamlNode::of(YamlNode::Kind::mapping, 1)});
    const std::size_t dot = put.key.find('.');
    YamlNode& section =
        dot == std::string::npos ? tree->root : section_in(tree->root, put.key.substr(0, dot), put.from.line);
    section.entries.push_back({put.key.substr(dot == std::string::npos ? 0 : dot + 1), put.from.line, put.value});
  }
}

ForeignTranslation ForeignReading::finish() {
  for (const auto& [kind, entry] : beside_) read_file(*kind, entry);
  for (const auto& [kind, entry] : beside_)
    if (kind->finish != nullptr) kind->finish(*this);
  if (kind_.finish != nullptr) kind_.finish(*this);
  if (!request_.task.empty()) put("task.type", request_.task, whole());
  make_length();
  make_batch();
  make_strategy();
  make_trees();
  tell_what_asks_for_nothing();
  std::stable_sort(out_.told.begin(), out_.told.end(), [&](const ForeignTold& a, const ForeignTold& b) {
    return std::pair(a.file != file_, a.line) < std::pair(b.file != file_, b.line);
  });
  return std::move(out_);
}

}  // namespace keel
