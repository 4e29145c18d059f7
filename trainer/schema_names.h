#pragma once
// Names of configuration keys: which exist, what they are called elsewhere, and which one was probably meant.

#include <string>
#include <string_view>

#include "keel/trainer/yaml_reader.h"

namespace keel {

bool is_inside(std::string_view key, std::string_view section);
bool is_section(std::string_view key);
bool is_key(std::string_view key);
std::string_view section_of(std::string_view key);

// The key that `key` is another program's word for, or `key` itself; a word that says so makes the value a ratio.
std::string own_key(std::string_view key, YamlNode& value);
// `1` as `1.0`, which counts as a ratio.
YamlNode as_ratio(YamlNode value);

// The key that `key` was probably meant to be, by its own name or by other programs' word for it; empty when there is
// none. In a section that exists only its keys are compared: a long section's name would make every key near.
std::string likely_key(std::string_view key);

// What to say about an unknown key that resembles none: the keys of its section, if there is such a section.
std::string where_keys_are(std::string_view section);

}  // namespace keel
