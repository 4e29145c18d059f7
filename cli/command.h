#pragma once
// Commands of a program, described as data. The parser (run_program.h), --help (help.h) and the list of commands read
// these descriptions, and nothing else knows an option.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace keel::cli {

using Words = std::vector<std::string>;

// What the words of an option are read into: a variable that outlives the command and holds the default. How many words
// there are, and what they may be, follows from the variable's type.
struct Value {
  // A switch. An option has its name, and may have --no-NAME, which clears it; so does --NAME=false.
  Value(bool* variable);
  Value(std::string* variable);
  // From `lowest` to `highest`, both included.
  Value(int* variable, int lowest, int highest);
  Value(std::int64_t* variable, std::int64_t lowest, std::int64_t highest);
  Value(std::uint64_t* variable);
  Value(double* variable, double lowest = std::numeric_limits<double>::lowest(),
        double highest = std::numeric_limits<double>::max());
  // Lists are one word with commas: what stands behind it is another argument. Given again they grow.
  Value(Words* variable);
  Value(std::vector<int>* variable, int lowest, int highest);

  // So many words, as they are.
  static Value words(Words* variable, int count);
  // Every word that comes, as it is, commas included.
  static Value every_word(Words* variable);
  // The word that comes and all behind it, as they are: the arguments of somebody else. Where `shares(first word)`
  // holds, options of the command may stand among them, and those that it does not know belong to them.
  static Value rest(Words* variable, bool (*shares)(std::string_view first));
  // No variable: the program prints this text and ends, whatever else was asked for.
  static Value shown(std::function<std::string()> text);

  int count = 1;         // of words that the option takes
  bool repeats = false;  // whether it may be given again
  bool is_list = false;
  std::string type;                             // for --help: "INT in [1 - 1024]"
  std::string expects;                          // for messages: "a whole number from 1 to 1024"
  std::string initial;                          // the default; empty: none that could be typed
  std::function<bool(const Words&)> read = {};  // false: they are not what it expects
  std::function<std::string()> text = {};
  bool (*shares)(std::string_view first) = nullptr;  // of `rest` alone

 private:
  Value() = default;
};

inline constexpr bool kRequired = true;

struct Option {
  std::string names;        // "-b,--begin", "--check,--no-check"; of a positional "CONFIG.yaml"
  std::string placeholder;  // what --help calls a value: "BYTES"; empty: its type
  Value value;
  std::string help;  // empty: not for users, and not in --help
  bool is_required = false;
};
// "-b" and "--begin".
Words names_of(const Option& option);

// What a user gave, in words that can be typed again: {"--begin", "1M"}, {"--check=false"}, {"a.yaml"}.
struct Given {
  std::string names;  // of the option
  Words words;
};
using Call = std::vector<Given>;

struct Command {
  std::string name;
  std::string help;                      // a line
  std::vector<Option> positionals = {};  // in their order; one that takes every word is the last
  std::vector<Option> options = {};
  std::string footer = {};                   // examples, and what else --help says
  std::function<int(const Call&)> run = {};  // returns the exit code; every variable has been read before
  std::vector<Command> commands = {};        // of which a user names one, instead of `run`
};

}  // namespace keel::cli
