#include "keel/config/yaml_reader.h"

#include <gtest/gtest.h>

#include <utility>

#include "keel/config/yaml_words.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// "a: [1, \"2\"]", with a mark behind what stood between quotes.
std::string shape_of(const YamlNode& node) {
  std::string text;
  switch (node.kind) {
    case YamlNode::Kind::null: return "nothing";
    case YamlNode::Kind::scalar: return concat(node.text, node.quoted ? "'" : "");
    case YamlNode::Kind::list:
      for (const YamlNode& item : node.items) text += concat(text.empty() ? "" : ", ", shape_of(item));
      return concat('[', text, ']');
    case YamlNode::Kind::mapping:
      for (const YamlEntry& entry : node.entries)
        text += concat(text.empty() ? "" : ", ", entry.key, ": ", shape_of(entry.value));
      return concat('{', text, '}');
  }
  return "";
}

// "3: a tab ...", a line each.
std::string problems_of(std::string_view text) {
  std::string problems;
  for (const YamlProblem& problem : read_yaml(text).problems)
    problems += concat(problems.empty() ? "" : "\n", problem.line, ": ", problem.message);
  return problems;
}

TEST(YamlReader, BlocksAndBracesGiveOneTree) {
  const char* const same[] = {"a: 1\nb:\n  c: 'x'\n  d:\n    - 2\n    - [3, {e: }]\n",
                              "{a: 1, b: {c: \"x\", d: [2, [3, {e: ~}]]}}",
                              "---\na: 1\nb: {c: 'x', d: [2, [3, {e: null}]]}\n...\n"};
  for (const char* text : same) {
    const YamlDocument document = read_yaml(text);
    EXPECT_TRUE(document.complete) << text;
    EXPECT_EQ(problems_of(text), "");
    EXPECT_EQ(shape_of(document.root), "{a: 1, b: {c: x', d: [2, [3, {e: nothing}]]}}") << text;
  }
  for (const char* empty : {"", "\n\n", "# nothing\n"}) {
    EXPECT_EQ(shape_of(read_yaml(empty).root), "nothing");
    EXPECT_EQ(problems_of(empty), "");
  }
}

TEST(YamlReader, EveryNodeKnowsItsLine) {
  const YamlDocument document = read_yaml("a: 1\n\nb:\n  - x\n  - {c: 3,\n     d: 4}\n");
  const std::vector<YamlEntry>& entries = document.root.entries;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].line, 1);
  EXPECT_EQ(entries[1].line, 3);
  ASSERT_EQ(entries[1].value.items.size(), 2u);
  EXPECT_EQ(entries[1].value.items[0].line, 4);
  ASSERT_EQ(entries[1].value.items[1].entries.size(), 2u);
  EXPECT_EQ(entries[1].value.items[1].entries[1].line, 6);
}

TEST(YamlReader, WhatIsNotYamlIsToldWithItsLineAndNothingIsRead) {
  const std::pair<const char*, const char*> cases[] = {
      {"a: 1\na: 2", "2: key 'a' is given twice, first on line 1"},
      {"a: 1\n\tb: 2", "2: a tab is used as indentation; use spaces"},
      {"a: 1\n---\nb: 2", "3: a second document starts (---); keep one"},
      {"a: &x 1", "1: anchors and aliases (&, *) are not used here; write the value out"},
      {"a: !!int 1", "1: tags (!) are not used here; write the plain value"},
      {"%YAML 1.2\n---\na: 1", "1: directives (%) are not used here"},
      {"a:\n  [1, 2", "2: a quote or bracket is opened and not closed"},
      {"a: 'x\nb: 1", "1: a quote or bracket is opened and not closed"},
      {"a\n\x01", "1: holds a control character (byte 1): it is not a text file"},
  };
  for (const auto& [text, problem] : cases) EXPECT_EQ(problems_of(text), problem) << text;
  EXPECT_FALSE(read_yaml("a: [1").complete);
  EXPECT_EQ(shape_of(read_yaml("a: [1").root), "nothing");
  EXPECT_EQ(problems_of(std::string(kLongestYaml, '#')), "");
  EXPECT_EQ(problems_of(std::string(kLongestYaml + 1, '#')),
            "1: is longer than 65536 bytes, the most that a configuration may have; is this the right file?");
}

TEST(YamlReader, DeepTextsEndInAnError) {
  for (const char* piece : {"[", "{", "{a: ", "- ", "? ", "a: [", "&a [*a,", "!"}) {
    std::string text;
    while (text.size() + 8 < kLongestYaml) text += piece;
    EXPECT_NE(problems_of(text), "") << piece;
  }
}

TEST(YamlReader, AMessageWithoutWordsOfOursIsQuoted) {
  EXPECT_EQ(in_our_words("a message of a later version"), "is not valid YAML: a message of a later version");
  // Of two beginnings that fit, the longer one speaks.
  EXPECT_NE(in_our_words("end of map flow not found"), in_our_words("end of map not found"));
}

}  // namespace
}  // namespace keel
