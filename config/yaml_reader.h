#pragma once
// A small, strict view of YAML: one document as a tree of texts that know their lines.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {

struct YamlEntry;

struct YamlNode {
  enum class Kind : unsigned char { null, scalar, list, mapping };
  Kind kind = Kind::null;
  int line = 0;           // from 1
  bool quoted = false;    // a scalar between quotes is text, whatever it looks like
  std::string text = {};  // of a scalar
  std::vector<YamlNode> items = {};
  std::vector<YamlEntry> entries;  // of a mapping, in the order of the file

  static YamlNode of(Kind kind, int line);
  static YamlNode scalar(std::string text, int line = 0, bool quoted = false);
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlNode value;
};

inline YamlNode YamlNode::of(Kind kind, int line) {
  YamlNode node;
  node.kind = kind;
  node.line = line;
  return node;
}
inline YamlNode YamlNode::scalar(std::string text, int line, bool quoted) {
  YamlNode node = of(Kind::scalar, line);
  node.quoted = quoted;
  node.text = std::move(text);
  return node;
}

// Something wrong at a line inside a value that spans several.
class YamlError : public Error {
 public:
  YamlError(int line, const std::string& message) : Error(message), line_(line) {}
  int line() const noexcept { return line_; }

 private:
  int line_;
};

struct YamlProblem {
  int line = 0;
  std::string message;
};

struct YamlDocument {
  YamlNode root;          // null for an empty text
  bool complete = false;  // false: reading stopped at the last problem, and `root` holds nothing
  std::vector<YamlProblem> problems;
};

// Texts beyond this many bytes are refused: no configuration is that long.
inline constexpr std::size_t kLongestYaml = 65536;

// Refused, each with its line: syntax errors, tabs as indentation, a key given twice, several documents,
// anchors, aliases and tags. Never throws for what the text holds.
YamlDocument read_yaml(std::string_view text);

}  // namespace keel
