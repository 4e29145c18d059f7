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

struct Asking {
  Words given = {};          // KEY=VALUE, of which nothing is asked
  bool defaults = false;     // asks nothing that has a default
  bool is_a_person = false;  // who sees what is wrong with an answer, and is asked again; else that is an Error
};

struct Answers {
  std::string yaml;
  int ranks = 1;
};

// Asks on `out` and reads a line for each question from `in`: first which task, then what the task has no default for
// and what it wants asked (SchemaRow::asked), section by section, and then what every training needs. A value is
// checked at once, and a section with all before it when its last question is answered: what contradicts is asked
// again. An end before the last answer is an Error.
Answers ask_questions(const std::shared_ptr<const ConfigKeys>& keys, const Asking& asking, std::istream& in,
                      std::ostream& out);

}  // namespace keel::cli
