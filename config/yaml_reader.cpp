#include "keel/config/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

#include "keel/config/yaml_words.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Builds the tree from yaml-cpp's events, which, unlike its nodes, still show anchors and duplicates.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(YamlDocument& document) : document_(document) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(YamlNode::of(YamlNode::Kind::null, line_of(mark)));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(YamlNode::of(YamlNode::Kind::null, line_of(mark)));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    add(YamlNode::scalar(value, line_of(mark), tag == "!"));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::mapping);
  }
  void OnMapEnd() override { close(); }

  int last_line() const { return last_line_; }  // of the last thing that was read

 private:
  // A list or mapping that is still being read; a mapping alternates between keys and values.
  struct Open {
    YamlNode node;
    bool has_key = false;
    YamlNode key = {};
  };

  static int line_of(const YAML::Mark& mark) { return mark.line + 1; }
  void report(int line, std::string message) { document_.problems.push_back({line, std::move(message)}); }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) report(line_of(mark), "anchors and aliases (&, *) are not used here; write the value out");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "!" && tag != "?")
      report(line_of(mark), "tags (!) are not used here; write the plain value");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    open_.push_back({YamlNode::of(kind, line_of(mark))});
  }
  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    last_line_ = std::max(last_line_, node.line);
    if (open_.empty()) {
      document_.root = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      parent.key = std::move(node);
      parent.has_key = true;
    } else {
      parent.has_key = false;
      add_entry(parent.node, parent.key, std::move(node));
    }
  }

  void add_entry(YamlNode& mapping, const YamlNode& key, YamlNode value) {
    if (key.kind != YamlNode::Kind::scalar || key.text.empty())
      return report(key.line, "a key must be a word, as in `steps: 100`");
    for (const YamlEntry& entry : mapping.entries)
      if (entry.key == key.text)
        return report(key.line, concat("key '", key.text, "' is given twice, first on line ", entry.line));
    mapping.entries.push_back({key.text, key.line, std::move(value)});
  }

  YamlDocument& document_;
  std::vector<Open> open_;
  int last_line_ = 1;
};

// Why a text is none; empty where it may be one. Tabs and ends of lines are all that a text has of control characters.
std::string why_not_text(std::string_view text) {
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code == 0) return "holds zero bytes: it is not a text file";
    if ((code < 0x20 && c != '\t' && c != '\n' && c != '\r') || code == 0x7f)
      return concat("holds a control character (byte ", static_cast<int>(code), "): it is not a text file");
  }
  return "";
}

// What YAML or yaml-cpp would misread without a word: tabs as indentation, and % at the start of a line.
void check_lines(std::string_view text, std::vector<YamlProblem>& problems) {
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::string_view row = text.substr(0, text.find('\n'));
    const std::size_t content = std::min(row.find_first_not_of(" \t\r"), row.size());
    if (row.substr(0, content).find('\t') != std::string_view::npos && content < row.size())
      problems.push_back({line, "a tab is used as indentation; use spaces"});
    if (row.starts_with('%')) problems.push_back({line, "directives (%) are not used here"});
    text.remove_prefix(std::min(row.size() + 1, text.size()));
  }
}

}  // namespace

YamlDocument read_yaml(std::string_view text) {
  YamlDocument document;
  if (const std::string why = why_not_text(text); !why.empty()) {
    document.problems.push_back({1, why});
    return document;
  }
  if (text.size() > kLongestYaml) {
    document.problems.push_back({1, concat("is longer than ", kLongestYaml,
                                           " bytes, the most that a configuration may have; is this the right file?")});
    return document;
  }
  check_lines(text, document.problems);
  if (!document.problems.empty()) return document;

  // Without the end mark, yaml-cpp accepts a quote that is still open at the end of the text.
  std::istringstream stream(concat(text, "\n...\n"));
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  TreeBuilder builder(document);
  try {
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      document.complete = true;
      YamlDocument rest;
      TreeBuilder ignored(rest);
      if (parser.HandleNextDocument(ignored))
        document.problems.push_back({std::max(rest.root.line, 1), "a second document starts (---); keep one"});
    }
  } catch (const YAML::Exception& error) {
    const int line = error.mark.line + 1;
    if (line > lines) document.problems.push_back({builder.last_line(), "a quote or bracket is opened and not closed"});
    else document.problems.push_back({std::max(line, 1), in_our_words(error.msg)});
  }
  return document;
}

}  // namespace keel
