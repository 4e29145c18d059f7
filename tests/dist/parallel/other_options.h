#pragma once
// For tests that walk the tables of engine options: another value of each.

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "keel/dist/parallel/engine_keys.h"
#include "keel/runtime/error.h"

namespace keel::testing {

struct OtherOption {
  std::string key, value;                                       // as configurations write them
  std::vector<std::pair<std::string, std::string>> needs = {};  // other keys, without which it means nothing
};

template <class Options>
std::string other_value(const OptionKey<Options>& key) {
  return std::visit(
      [&]<class T>(T Options::*member) -> std::string {
        if constexpr (std::is_same_v<T, bool>) {
          return Options{}.*member ? "false" : "true";
        } else if constexpr (has_names<T>) {
          return std::string(names_of(T{})[name_index(Options{}.*member) == 0 ? 1 : 0]);
        } else if constexpr (std::is_same_v<T, double>) {
          return key.low >= 1 ? "3.5" : "0.375";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return "elsewhere";
        } else {
          return key.unit > 1 ? "0.375" : concat(Options{}.*member + 2);
        }
      },
      key.member);
}

inline std::vector<OtherOption> other_options() {
  std::vector<OtherOption> all;
  visit_options({}, [&](std::string_view section, const auto& keys, const auto&) {
    for (const auto& key : keys) {
      OtherOption& option = all.emplace_back(OtherOption{concat(section, key.key), other_value(key)});
      // "auto|dynamic|fixed": what auto means depends on other keys.
      std::string_view values = key.when.values;
      if (values.starts_with("auto|")) values.remove_prefix(5);
      if (!values.empty()) option.needs.emplace_back(key.when.key, values.substr(0, values.find('|')));
      if (option.key == "sharding.secondary") option.needs.emplace_back("sharding.subgroup", "2");
    }
  });
  return all;
}

// The parts of to_text(), by key.
inline std::map<std::string, std::string> option_texts(const ShardedOptions& options) {
  std::map<std::string, std::string> texts;
  const std::string text = to_text(options);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find("; ", begin), text.size()), space = text.find(' ', begin);
    texts[text.substr(begin, space - begin)] = text.substr(space + 1, end - space - 1);
    begin = end + 2;
  }
  return texts;
}

// The keys whose values differ.
inline std::vector<std::string> differing(const ShardedOptions& a, const ShardedOptions& b) {
  std::vector<std::string> keys;
  const auto of_b = option_texts(b);
  for (const auto& [key, value] : option_texts(a))
    if (of_b.at(key) != value) keys.push_back(key);
  return keys;
}

}  // namespace keel::testing
