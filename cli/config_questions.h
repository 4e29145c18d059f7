#pragma once
// The questions of `keel config`, made from the schema.

#include <iosfwd>
#include <memory>
#include <string>

#include "command.h"

namespace keel {
class ConfigKeys;
}

namespace keel::cli {

struct Answers {
  std::string yaml;
  int ranks = 1;
};

// Asks on `out` and reads a line for each question from `in`; an answer that is wrong is asked again where `in` is a
// terminal, and is an Error elsewhere, as is an end before the last answer. `given` is KEY=VALUE, of which nothing is
// asked. With `defaults`, neither is what has one.
Answers ask_questions(const std::shared_ptr<const ConfigKeys>& keys, const Words& given, bool defaults,
                      std::istream& in, std::ostream& out);

}  // namespace keel::cli
