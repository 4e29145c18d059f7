#include "keel/trainer/variants.h"

#include <algorithm>
#include <string_view>

#include "keel/config/values.h"
#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/lab/sizes.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// The variants so far, each with each of the choices.
template <class Set>
std::vector<Variant> multiply(const std::vector<Variant>& variants, const std::vector<std::string>& choices,
                              const Set& set) {
  if (choices.empty()) return variants;
  std::vector<Variant> more;
  for (const Variant& variant : variants)
    for (const std::string& choice : choices) {
      const std::string name = concat(variant.name, variant.name.empty() ? "" : " ", choice);
      more.push_back({name, variant.config, name, variant.changes});
      set(more.back().config, choice);
    }
  return more;
}

void set_strategy(Config& config, const std::string& name) {
  config.strategy = parse_strategy(name);
  KEEL_CHECK(config.strategy.precision != Strategy::Precision::automatic, "strategy ", name,
             " leaves the numbers open; name them, as in ", name, "-fp32");
}

void set_algorithm(Config& config, const std::string& name) {
  const AlgorithmName& way = find_algorithm_name(name);
  KEEL_CHECK(!way.algorithm.empty(), "training does not use '", name, "', ", way.meaning);
  config.sharding.algorithm = way.name;
}

void set_bucket(Config& config, const std::string& size) {
  const std::int64_t bytes = lab::parse_size(size);
  KEEL_CHECK(bytes > 0, "a bucket needs a size above 0");
  config.sharding.bucket = bytes;
  config.sharding.first_bucket = std::min(config.sharding.first_bucket, config.sharding.bucket);
}

// "topk:0.01" as the configuration would say it, so that it is checked as if it were there.
void set_compression(Config& config, const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon), number = text.substr(std::min(colon + 1, text.size()));
  std::string setting = concat("gradient_compression={type: ", text_to_yaml(kind));
  if (colon < text.size())
    setting += concat(kind == "powersgd" ? ", rank: "
                      : kind == "qgz"    ? ", bits: "
                                         : ", fraction: ",
                      text_to_yaml(number));
  config = parse_config(config.keys, to_yaml(config), concat("--compression ", text), {setting + '}'});
}

constexpr std::string_view kUnchanged = "plain";

// The words of "a={b: [1, 2]} c='d e'".
std::vector<std::string> settings_in(std::string_view text) {
  std::vector<std::string> words(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'') quote = c;
    else if (c == '{' || c == '[') ++depth;
    else if (c == '}' || c == ']') --depth;
    if (c == ' ' && depth <= 0 && quote == 0) words.emplace_back();
    else words.back() += c;
  }
  std::erase(words, "");
  return words;
}

struct NamedChange {
  std::string name;
  std::vector<std::string> settings;
};

NamedChange parse_change(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  NamedChange change{text.substr(0, colon),
                     settings_in(std::string_view(text).substr(std::min(colon + 1, text.size())))};
  KEEL_CHECK(colon < text.size() && colon > 0 && change.name.find('=') == std::string::npos, "a variant is written as ",
             "'NAME: KEY=VALUE KEY=VALUE', and not as '", text, "'");
  KEEL_CHECK(!change.settings.empty(), "variant '", change.name, "' changes nothing; '", kUnchanged,
             "' is always among what is compared");
  return change;
}

std::vector<Variant> change(const std::vector<Variant>& variants, const std::vector<std::string>& texts) {
  if (texts.empty()) return variants;
  std::vector<NamedChange> changes = {{std::string(kUnchanged), {}}};
  for (const std::string& text : texts) {
    NamedChange change = parse_change(text);
    const bool is_new = std::none_of(changes.begin(), changes.end(),
                                     [&](const NamedChange& other) { return other.name == change.name; });
    KEEL_CHECK(is_new, "two variants are called '", change.name, "'",
               change.name == kUnchanged ? "; this one is always there, and changes nothing" : "");
    changes.push_back(std::move(change));
  }
  std::vector<Variant> more;
  for (const Variant& variant : variants)
    for (const NamedChange& change : changes) {
      const std::string name = concat(variant.name, variant.name.empty() ? "" : " ", change.name);
      more.push_back({name, variant.config, name, change.settings});
      if (!change.settings.empty())
        more.back().config =
            parse_config(variant.config.keys, to_yaml(variant.config), concat("variant '", change.name, "'"),
                         change.settings, concat("variant '", change.name, "'"));
    }
  return more;
}

}  // namespace

std::vector<Variant> variants_of(const Config& config, const CompareAxes& axes) {
  std::vector<Variant> variants = {{"", config}};
  variants = multiply(variants, axes.strategies, set_strategy);
  variants = multiply(variants, axes.algorithms, set_algorithm);
  variants = multiply(variants, axes.buckets, set_bucket);
  variants = change(variants, axes.changes);
  std::vector<std::string> compressions = axes.compressions;
  if (!compressions.empty() && std::find(compressions.begin(), compressions.end(), "none") == compressions.end())
    compressions.insert(compressions.begin(), "none");
  const std::vector<Variant> bases = variants;
  variants = multiply(bases, compressions, set_compression);
  for (std::size_t i = 0; i < variants.size() && !compressions.empty(); ++i)
    variants[i].base = bases[i / compressions.size()].name;
  if (variants.front().name.empty()) variants.front().name = variants.front().base = to_string(config.strategy);
  return variants;
}

}  // namespace keel
