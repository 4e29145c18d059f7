#pragma once
// Files of cases: what is given, and what is told of it.

#include <algorithm>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel::testing {

inline std::vector<std::string> parts_between(const std::string& text, const std::string& between) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(between, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + between.size();
  }
  return parts;
}

struct ToldCase {
  std::vector<std::string> words;
  std::string text, told;
};

// "=== WORD | WORD", lines of the text, "---", lines of what is told; and so on.
inline std::vector<ToldCase> read_told_cases(const std::string& path) {
  std::vector<ToldCase> cases;
  for (const std::string& each : parts_between(read_text_file(path), "=== ")) {
    if (each.empty()) continue;
    const std::size_t line = each.find('\n'), end = each.find("\n---\n");
    KEEL_CHECK(end != std::string::npos, path, ": a case without ---: ", each);
    cases.push_back(
        {parts_between(each.substr(0, line), " | "), each.substr(line + 1, end - line), each.substr(end + 5)});
  }
  return cases;
}

}  // namespace keel::testing
