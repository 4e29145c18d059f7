// The section `optimizer`: its rows, made from the table of optimizers, and the groups of parameters.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "keel/config/values.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/error.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

#define KEEL_OPTION(name) member(+[](Config & config) -> auto& { return config.optimizer.name; })

constexpr Range kFromZero = {.low = 0};
constexpr Range kAboveZero = {.low = 0, .low_open = true};
constexpr Range kUpToOne = {.low = 0, .high = 1};
constexpr Range kToZero = {.high = 0};
constexpr Range kFromOne = {.low = 1, .high = 100000};
constexpr Range kCount = {.low = 0, .high = 100000};

FieldPtr line_search_field() {
  return choice_field(
      [](const Config& config) { return static_cast<int>(config.optimizer.line_search); },
      [](Config& config, int index) { config.optimizer.line_search = static_cast<LineSearchKind>(index); },
      "none|strong_wolfe", "None=none");
}

// A choice whose names stand in the order of its values.
template <class Choice, Choice OptimizerValues::*kMember>
FieldPtr named_choice(std::string_view names, std::string_view aliases = {}) {
  return choice_field([](const Config& config) { return static_cast<int>(config.optimizer.*kMember); },
                      [](Config& config, int index) { config.optimizer.*kMember = static_cast<Choice>(index); }, names,
                      aliases);
}

// What an option is, whatever its default: options of the table of optimizers each have one.
struct OptionRow {
  std::string_view option;
  FieldPtr field;
  Range range;
  std::string_view help, aliases = {}, known_as = {};
};

std::span<const OptionRow> option_rows() {
  static const OptionRow rows[] = {
      {"lr", KEEL_OPTION(lr), kAboveZero,
       "Learning rate after the warm-up. Adafactor: only without relative_step, and then it must be given.",
       "learning_rate", "max_lr"},
      {"betas", KEEL_OPTION(betas), kFraction, "Decay rates of the means of the gradient and of its square.",
       "adamw_betas|tfadamw_betas|fuse_adam_betas", "beta|beta1|beta2"},
      {"eps", KEEL_OPTION(eps), kAboveZero, "Added to what divides, against division by zero.",
       "epsilon|adam_epsilon|adamw_epsilon|tfadamw_epsilon|fuse_adam_epsilon"},
      {"weight_decay",
       KEEL_OPTION(weight_decay),
       kFromZero,
       "Decay of matrices; biases and norms have none. AdamW, HFAdamW, TFAdamW, Adam8bit, AdamW8bit, Lion, LAMB, "
       "Adafactor, Muon, ScheduleFreeAdamW and "
       "decoupled_weight_decay shrink the weights themselves; with the others it is part of the gradient (an L2 "
       "penalty).",
       {},
       "decay|wd"},
      {"momentum", KEEL_OPTION(momentum), kFraction, "Decay rate of the velocity; 0: none is kept."},
      {"dampening", KEEL_OPTION(dampening), kAny, "The velocity takes 1 - dampening of each gradient."},
      {"nesterov", KEEL_OPTION(nesterov), kAny,
       "Nesterov's form of momentum; needs a momentum above 0 and no dampening."},
      {"correct_bias", KEEL_OPTION(correct_bias), kAny, "Divide the means by what their start at 0 leaves out.",
       "bias_correction"},
      {"amsgrad", KEEL_OPTION(amsgrad), kAny,
       "Divide by the largest mean square so far; keeps one more number a weight.",
       "adamw_amsgrad|tfadamw_amsgrad|fuse_adam_amsgrad"},
      {"momentum_decay", KEEL_OPTION(momentum_decay), kFromZero, "How fast the momentum grows to its full strength."},
      {"decoupled_weight_decay", KEEL_OPTION(decoupled_weight_decay), kAny,
       "Decay the weights themselves, as AdamW does, and not through the gradient."},
      {"rho", KEEL_OPTION(rho), kUpToOne, "Decay rate of the mean squares."},
      {"alpha", KEEL_OPTION(alpha), kUpToOne,
       "RMSprop: decay rate of the mean square; ASGD: power with which the rate falls."},
      {"centered", KEEL_OPTION(centered), kAny, "Divide by the deviation from the mean gradient, which is kept, too."},
      {"lr_decay", KEEL_OPTION(lr_decay), kFromZero, "The rate is divided by 1 + lr_decay for each step before."},
      {"initial_accumulator", KEEL_OPTION(initial_accumulator), kFromZero, "Where the sums of squares begin.",
       "initial_accumulator_value"},
      {"etas", KEEL_OPTION(etas), kAboveZero, "Factors on a step size where the sign turns, and where it stays."},
      {"step_sizes", KEEL_OPTION(step_sizes), kFromZero, "The least and the largest step size."},
      {"lambd", KEEL_OPTION(lambd), kFromZero, "Decay of rate and weights."},
      {"t0", KEEL_OPTION(t0), kFromZero, "Step at which the averaging begins."},
      {"max_coeff", KEEL_OPTION(max_coeff), kAboveZero, "The most that LAMB multiplies a rate with."},
      {"min_coeff", KEEL_OPTION(min_coeff), kFromZero, "The least that LAMB multiplies a rate with."},
      {"adapt_without_decay", KEEL_OPTION(adapt_without_decay), kAny,
       "Adapt the rates of parameters that do not decay, too; false: as NVIDIA's apex does.", "use_nvlamb"},
      {"trust_coefficient", KEEL_OPTION(trust_coefficient), kAboveZero,
       "How long a step is, as a part of the weights' length."},
      {"epsilons",
       KEEL_OPTION(epsilons),
       kFromZero,
       "Added to squares of gradients, and the least length of weights that a step is a part of.",
       {},
       "eps"},
      {"clip_threshold", KEEL_OPTION(clip_threshold), kAboveZero,
       "Updates whose root mean square is longer are shortened to it, before the rate."},
      {"decay_rate",
       KEEL_OPTION(decay_rate),
       kToZero,
       "The decay rate of the mean squares is 1 - steps^decay_rate.",
       {},
       "decay"},
      {"beta1", KEEL_OPTION(beta1), kFraction,
       "Decay rate of the mean of updates; 0: none is kept. transformers-framework's -0.8 is a decay_rate in the wrong "
       "place, and is refused."},
      {"scale_parameter", KEEL_OPTION(scale_parameter), kAny,
       "Multiply the rate with the root mean square of the weights."},
      {"relative_step", KEEL_OPTION(relative_step), kAny,
       "The rate is min(0.01, 1 / sqrt(steps)), times what the schedule makes of 1; lr is not given. "
       "transformers-framework has it off."},
      {"warmup_init", KEEL_OPTION(warmup_init), kAny, "With relative_step: 1e-6 times the steps instead of 0.01."},
      {"min_8bit_size",
       KEEL_OPTION(min_8bit_size),
       {.low = 256},
       "Parameters of so many numbers keep their means in 8 bits, in blocks of 256; smaller ones and embeddings in "
       "fp32."},
      {"max_iterations", KEEL_OPTION(max_iterations), kFromOne, "Directions in a step.", "max_iter"},
      {"max_evaluations", KEEL_OPTION(max_evaluations), kCount,
       "Evaluations of loss and gradient after which a step takes no further direction, and a search no further trial; "
       "0: 5/4 of max_iterations.",
       "max_eval"},
      {"tolerance_gradient", KEEL_OPTION(tolerance_gradient), kFromZero,
       "A step ends where no element of the gradient is larger.", "tolerance_grad"},
      {"tolerance_change", KEEL_OPTION(tolerance_change), kFromZero,
       "A step ends where loss or weights change by less."},
      {"history", KEEL_OPTION(history), kFromOne,
       "Changes of gradient and weights that are kept: 2 * history + 2 numbers a weight.", "history_size"},
      {"line_search", line_search_field(), kAny,
       "strong_wolfe: search along each direction for a step that lowers loss and slope enough; none: a step of lr.",
       "line_search_fn"},
      {"matrices", named_choice<MuonMatrices, &OptimizerValues::matrices>(kMuonMatrices), kAny,
       "What Muon makes orthogonal: hidden: weights of linear layers but heads, and not embeddings; all: everything of "
       "two "
       "dimensions; none: nothing, so that AdamW moves it. For groups."},
      {"matrix_scale", named_choice<MuonScale, &OptimizerValues::matrix_scale>(kMuonScales), kAny,
       "The factor on an orthogonal update (rows, columns). match_rms_adamw: 0.2 sqrt(max(rows, columns)), so that "
       "AdamW's "
       "lr and decay serve; original: sqrt(max(1, rows / columns)), with a larger lr (0.02).",
       "adjust_lr_fn"},
      {"newton_schulz_steps", KEEL_OPTION(newton_schulz_steps), kFromOne, "Iterations that make a matrix orthogonal.",
       "ns_steps"},
      {"products", named_choice<MuonProducts, &OptimizerValues::products>(kMuonProducts), kAny,
       "The numbers in which matrices travel to the rank that makes them orthogonal, and are multiplied there."},
      {"adamw_lr_factor", KEEL_OPTION(adamw_lr_factor), kFromZero, "Factor on the rate of what AdamW moves."},
      {"weight_lr_power", KEEL_OPTION(weight_lr_power), kFromZero,
       "A step counts in the mean of the weights by its rate to this power, so that a warm-up counts for little."},
      {"r", KEEL_OPTION(r), kFromZero, "And by its number to this power; above 0 later steps count for more."},
      {"maximize", KEEL_OPTION(maximize), kAny, "Climb instead of descend."},
      {"stochastic_rounding", KEEL_OPTION(stochastic_rounding), kAny,
       "Round bf16 weights up or down at random and keep no fp32 copy beside them, which spares 4 bytes each; needs "
       "strategy bf16."},
  };
  return rows;
}

int index_of(std::string_view name) {
  int index = 0;
  for (const OptimizerEntry& entry : optimizers()) {
    if (entry.name == name) return index;
    ++index;
  }
  throw Error(concat("there is no optimizer '", name, "'"));
}

FieldPtr optimizer_field() {
  std::string names, others;
  const auto add = [&](std::string_view word, std::string_view name) {
    if (word != name) others += concat(others.empty() ? "" : "|", word, "=", name);
  };
  for (const OptimizerEntry& entry : optimizers()) {
    names += concat(names.empty() ? "" : "|", entry.name);
    std::vector<std::string_view> words = split_choices(entry.aliases);
    words.push_back(entry.name);
    for (const std::string_view word : words) {
      std::string lower(word);
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      add(lower, entry.name);
      if (lower != word) add(word, entry.name);
    }
  }
  return choice_field(
      [](const Config& config) { return index_of(config.optimizer.type); },
      [](Config& config, int index) { config.optimizer.type = optimizers()[static_cast<std::size_t>(index)].name; },
      kept(names), kept(others));
}

std::string type_help() {
  std::string text = "Update rule.";
  for (const OptimizerEntry& entry : optimizers()) text += concat(" ", entry.name, ": ", entry.summary);
  return text;
}

// One row for each different default of the option, with the optimizers that have it.
void add_rows(const OptionRow& option, std::vector<SchemaRow>& rows) {
  std::vector<std::pair<std::string_view, std::string>> users;  // by default
  std::size_t count = 0;
  for (const OptimizerEntry& entry : optimizers())
    for (const OptionDefault& each : entry.options) {
      if (each.option != option.option) continue;
      ++count;
      const auto same = std::find_if(users.begin(), users.end(), [&](const auto& u) { return u.first == each.value; });
      if (same == users.end()) users.emplace_back(each.value, entry.name);
      else same->second += concat("|", entry.name);
    }
  const bool everywhere = users.size() == 1 && count == optimizers().size();
  for (const auto& [standard, names] : users) {
    SchemaRow row{kept(concat("optimizer.", option.option)), option.field, standard, option.range, {}, option.help};
    row.aliases = option.aliases;
    row.known_as = option.known_as;
    if (!everywhere) row.when = {"optimizer.type", kept(names)};
    rows.push_back(row);
  }
}

double number_of(const YamlEntry& entry) {
  const std::string& text = entry.value.text;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_plain = entry.value.kind == YamlNode::Kind::scalar && !entry.value.quoted;
  if (!is_plain || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    throw YamlError(entry.line, concat(entry.key, " expects a number >= 0"));
  return value;
}

// Options that may differ between groups; the rate does by lr_factor.
bool is_for_groups(std::string_view option) {
  return option != "lr" && option != "stochastic_rounding" &&
         std::any_of(option_rows().begin(), option_rows().end(),
                     [&](const OptionRow& row) { return row.option == option; });
}

std::string unknown_in_group(const std::string& key) {
  std::vector<std::string_view> names = {"match", "lr_factor"};
  for (const OptionRow& row : option_rows())
    if (is_for_groups(row.option)) names.push_back(row.option);
  const std::string close = nearest(key.substr(0, 64), names);
  return concat("a group has match, weight_decay, lr_factor and other options of the optimizer's, got '", key, "'",
                close.empty() ? "" : concat("; did you mean '", close, "'?"));
}

GroupPattern read_group(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::mapping)
    throw YamlError(node.line, "expects groups, as in [{match: \"bias|norm\", weight_decay: 0}]");
  GroupPattern group;
  bool has_match = false;
  for (const YamlEntry& entry : node.entries) {
    if (entry.key == "match") {
      if (entry.value.kind != YamlNode::Kind::scalar)
        throw YamlError(entry.line, "match expects a text, parts of names with | between them");
      group.match = entry.value.text;
      has_match = true;
    } else if (entry.key == "weight_decay") {
      group.weight_decay = number_of(entry);
    } else if (entry.key == "lr_factor") {
      group.lr_factor = number_of(entry);
    } else {
      if (!is_for_groups(entry.key)) throw YamlError(entry.line, unknown_in_group(entry.key));
      group.options.emplace_back(entry.key, flow_text(entry.value));
    }
  }
  if (!has_match) throw YamlError(node.line, "a group needs match: parts of names with | between them");
  return group;
}

}  // namespace

std::vector<SchemaRow> optimizer_rows() {
  std::vector<SchemaRow> rows;
  rows.push_back(
      {"optimizer.type", optimizer_field(), optimizers().front().name, kAny, {}, kept(type_help()), "optim|name"});
  for (const OptionRow& option : option_rows()) add_rows(option, rows);
  rows.push_back(
      {"optimizer.groups",
       KEEL_OPTION(groups),
       "[]",
       kAny,
       {},
       "Parameters by parts of their names, as in [{match: \"bias|norm\", weight_decay: 0, lr_factor: 0.5}]: "
       "the first group that fits says their decay, the factor on their rate, and any other option of the optimizer's "
       "but lr that is to differ (betas, eps, momentum, ...); \"\" fits every name.",
       "param_groups|parameter_groups"});
  rows.push_back({"optimizer.layer_decay",
                  KEEL_OPTION(layer_decay),
                  "1",
                  {.low = 0, .high = 1, .low_open = true},
                  {},
                  "The rate of each block is that of the one above times this, from the output layer down to the "
                  "embeddings; 1: all have the same.",
                  "layerwise_decay|layer_wise_decay"});
  return rows;
}

#undef KEEL_OPTION

void set_groups(std::vector<GroupPattern>& groups, const YamlNode& node) {
  std::vector<GroupPattern> read;
  for (const YamlNode& item : node.items) read.push_back(read_group(item));
  groups = std::move(read);
}

std::string groups_text(const std::vector<GroupPattern>& groups) {
  std::string text;
  for (const GroupPattern& group : groups) {
    text += concat(text.empty() ? "" : ", ", "{match: ", text_to_yaml(group.match));
    if (group.weight_decay) text += fmt::format(", weight_decay: {}", *group.weight_decay);
    text += fmt::format(", lr_factor: {}", group.lr_factor);
    for (const auto& [option, value] : group.options) text += concat(", ", option, ": ", value);
    text += "}";
  }
  return concat("[", text, "]");
}

std::vector<OptimizerValues> group_options(const Config& config) {
  const OptimizerEntry& entry = find_optimizer(config.optimizer.type);
  std::vector<OptimizerValues> all;
  for (const GroupPattern& group : config.optimizer.groups) {
    if (group.options.empty()) continue;
    Config own = config;
    for (const auto& [option, value] : group.options) {
      const std::string key = concat("optimizer.", option);
      const std::span<const SchemaRow> rows = own_schema()->rows();
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const SchemaRow& each) {
        return each.key == key && (each.when.key.empty() || each.when.accepts(entry.name));
      });
      KEEL_CHECK(row != rows.end(), "the group '", group.match, "' has ", option, ", which ", entry.name, " has not");
      try {
        set_value(*row, own, read_yaml(value).root);
      } catch (const Error& error) { throw Error(concat("the group '", group.match, "': ", option, " "), error); }
    }
    all.push_back(own.optimizer);
  }
  return all;
}

}  // namespace keel
