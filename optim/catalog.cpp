#include "keel/optim/catalog.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "keel/optim/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

std::string plain(std::string_view name) {
  std::string word;
  for (const char c : name)
    if (c != '_' && c != '-') word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

bool is_alias(std::string_view aliases, std::string_view word) {
  while (!aliases.empty()) {
    const std::size_t end = std::min(aliases.find('|'), aliases.size());
    if (plain(aliases.substr(0, end)) == word) return true;
    aliases.remove_prefix(std::min(end + 1, aliases.size()));
  }
  return false;
}

}  // namespace

const OptionDefault* OptimizerEntry::find(std::string_view option) const {
  const auto at =
      std::find_if(options.begin(), options.end(), [&](const OptionDefault& o) { return o.option == option; });
  return at == options.end() ? nullptr : &*at;
}

const OptimizerEntry& find_optimizer(std::string_view name) {
  const std::string word = plain(name.substr(0, 64));
  std::string list;
  std::vector<std::string> words;
  for (const OptimizerEntry& entry : optimizers()) {
    if (plain(entry.name) == word || is_alias(entry.aliases, word)) return entry;
    words.push_back(plain(entry.name));
    list += concat(list.empty() ? "" : ", ", entry.name);
  }
  const std::string close = nearest(word, words);
  const auto at = static_cast<std::size_t>(std::find(words.begin(), words.end(), close) - words.begin());
  throw Error(concat("expects one of ", list, ", got '", name.substr(0, 64), "'",
                     close.empty() ? "" : concat("; did you mean '", optimizers()[at].name, "'?")));
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const OptimizerOptions& options,
                                          std::uint64_t seed) {
  return make_optimizer(entry, with_defaults(entry, options), seed, {});
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const OptimizerValues& values,
                                          std::uint64_t seed, std::span<const OptimizerValues> variants) {
  if (entry.make != nullptr) {
    KEEL_CHECK(variants.empty(), entry.name, ": no group can have options of its own");
    return entry.make(values);
  }
  std::vector<UpdateSettings> of_groups;
  for (const OptimizerValues& each : variants) of_groups.push_back(entry.settings(each));
  return make_elementwise(entry.name, {.settings = entry.settings(values),
                                       .variants = std::move(of_groups),
                                       .weight_decay = entry.has("weight_decay") ? values.weight_decay : 0,
                                       .stochastic_rounding = values.stochastic_rounding,
                                       .seed = seed,
                                       .takes_rows = entry.requirements.rows});
}

}  // namespace keel
