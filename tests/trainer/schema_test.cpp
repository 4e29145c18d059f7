#include "keel/trainer/schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/trainer/language_schema.h"

namespace keel {
namespace {

using testing::language_schema;

bool is_choice(const SchemaRow& row) { return !row.field->choices().empty(); }

// The values that another row's condition may name.
std::vector<std::string_view> choices_of(const SchemaRow& row) {
  if (is_choice(row)) return split_choices(row.field->choices());
  if (describe_values(row) == "true or false") return {"false", "true"};
  // Of another key its default, which leaves out what the others are about.
  if (row.standard.empty() || row.standard.starts_with('=')) return {};
  return {row.standard};
}

TEST(Schema, ConditionsAndDefaultsNameEarlierRows) {
  std::set<std::string_view> earlier, choices;
  std::string_view previous;
  for (const SchemaRow& row : language_schema().rows()) {
    EXPECT_TRUE(row.key == previous || !earlier.contains(row.key))
        << row.key << ": its rows must be next to each other";
    EXPECT_TRUE(row.when.key.empty() || choices.contains(row.when.key) || row.when.key == "model.from") << row.key;
    EXPECT_TRUE(!row.standard.starts_with('=') || earlier.contains(row.standard.substr(1))) << row.key;
    EXPECT_LT(std::count(row.key.begin(), row.key.end(), '.'), 2) << row.key;
    earlier.insert(previous = row.key);
    if (!choices_of(row).empty()) choices.insert(row.key);
  }
}

TEST(Schema, ConditionsUseChoicesThatExist) {
  for (const SchemaRow& row : language_schema().rows())
    for (const std::string_view value : split_choices(row.when.values)) {
      bool is_known = row.when.key == "model.from";  // a text, which may be anything
      for (const SchemaRow& other : language_schema().rows())
        if (other.key == row.when.key) is_known |= std::ranges::count(choices_of(other), value) > 0;
      EXPECT_TRUE(is_known) << row.key << ": " << value;
    }
}

TEST(Schema, SectionsAreContiguousAndHelpIsOneSentenceOrMore) {
  std::set<std::string_view> closed;
  std::string_view current;
  for (const SchemaRow& row : language_schema().rows()) {
    const std::size_t dot = row.key.find('.');
    const std::string_view section = dot == std::string_view::npos ? row.key : row.key.substr(0, dot);
    EXPECT_TRUE(section == current || closed.insert(section).second) << row.key;
    current = section;
    EXPECT_TRUE(row.help.ends_with('.')) << row.key;
    EXPECT_EQ(row.help.find('\n'), std::string_view::npos) << row.key;
  }
}

TEST(Schema, EveryChoiceSetsAndReadsBack) {
  for (const SchemaRow& row : language_schema().rows())
    if (is_choice(row))
      for (const std::string_view value : split_choices(row.field->choices())) {
        Config config;
        set_value(row, config, YamlNode::scalar(std::string(value)));
        EXPECT_EQ(value_text(row, config), value) << row.key;
      }
}

TEST(Schema, EveryRowWritesItsOwnMember) {
  // A row bound to another row's member would change the text of both.
  for (const SchemaRow& row : language_schema().rows()) {
    Config changed;
    if (row.standard.empty() || row.standard[0] == '=') continue;
    set_value(row, changed, read_yaml(row.standard).root);
    for (const SchemaRow& other : language_schema().rows())
      EXPECT_TRUE(other.key == row.key || value_text(other, changed) == value_text(other, Config{}))
          << row.key << " changes " << other.key;
  }
}

TEST(Schema, TheCommittedReferencePageIsTheGeneratedOne) {
  std::ifstream file(KEEL_SOURCE_DIR "/docs/config.md", std::ios::binary);
  ASSERT_TRUE(file) << "docs/config.md is missing";
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), config_reference()) << "run `build/keel docs config > docs/config.md`";
}

TEST(Schema, HelpFitsATerminal) {
  std::istringstream help(config_help());
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 120u) << line;
}

}  // namespace
}  // namespace keel
