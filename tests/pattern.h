#pragma once
// Regular expressions for tests. <regex> takes seconds to compile where it is used, and this does not.

#include <regex.h>

#include <string>
#include <vector>

#include "keel/runtime/error.h"

namespace keel::testing {

// The first match of a POSIX extended regular expression: all of it, then its groups. Empty where nothing matches.
// '.' is any character but the end of a line; ^ and $ are the ends of a line.
inline std::vector<std::string> first_match(const std::string& text, const std::string& pattern) {
  regex_t compiled;
  KEEL_CHECK(::regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NEWLINE) == 0, "no pattern: ", pattern);
  std::vector<regmatch_t> places(compiled.re_nsub + 1);
  const bool matches = ::regexec(&compiled, text.c_str(), places.size(), places.data(), 0) == 0;
  ::regfree(&compiled);
  std::vector<std::string> parts;
  for (const regmatch_t& place : places)
    if (matches)
      parts.push_back(place.rm_so < 0 ? std::string()
                                      : text.substr(static_cast<std::size_t>(place.rm_so),
                                                    static_cast<std::size_t>(place.rm_eo - place.rm_so)));
  return parts;
}

}  // namespace keel::testing
