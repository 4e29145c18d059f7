#pragma once
// Values of keys by their type: read from YAML and checked against their row, written as YAML, and in words.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/schema_row.h"

namespace keel {

// What a node looks like in a message: "'abc'", "a list", "nothing".
std::string shown(const YamlNode& node);
// "expects a number > 0, got 'abc'", and `advice` behind it.
[[noreturn]] void refuse_value(const SchemaRow& row, const YamlNode& node, std::string_view advice = {});

// Each reads a value that the row accepts, or throws Error saying what was expected. A text is a path, in which a
// leading ~ is the home folder.
void read_value(const SchemaRow& row, const YamlNode& node, bool& value);
void read_value(const SchemaRow& row, const YamlNode& node, int& value);
void read_value(const SchemaRow& row, const YamlNode& node, std::int64_t& value);
void read_value(const SchemaRow& row, const YamlNode& node, std::uint64_t& value);
void read_value(const SchemaRow& row, const YamlNode& node, double& value);
void read_value(const SchemaRow& row, const YamlNode& node, std::array<double, 2>& value);
void read_value(const SchemaRow& row, const YamlNode& node, std::string& value);
// The place of the node's word in `choices` ("a|b"); `other_words` ("A=a|1=a") are read as well.
int read_choice(const SchemaRow& row, const YamlNode& node, std::string_view choices,
                std::string_view other_words = {});

// As YAML, such that the same value is read back.
std::string yaml_of(bool value);
std::string yaml_of(int value);
std::string yaml_of(std::int64_t value);
std::string yaml_of(std::uint64_t value);
std::string yaml_of(double value);
std::string yaml_of(const std::array<double, 2>& value);
std::string yaml_of(const std::string& path);
// A text as YAML: plain where that reads back as the same text, else in double quotes.
std::string text_to_yaml(std::string_view text);
// A value on one line: a word or number as it stands, [a, b], {key: value}.
std::string flow_text(const YamlNode& node);

// What a value of this type may be, for people; the value itself says nothing.
std::string words_for(bool, const Range& range);
std::string words_for(int, const Range& range);
std::string words_for(std::int64_t, const Range& range);
std::string words_for(std::uint64_t, const Range& range);
std::string words_for(double, const Range& range);
std::string words_for(const std::array<double, 2>&, const Range& range);
std::string words_for(const std::string&, const Range& range);

}  // namespace keel
