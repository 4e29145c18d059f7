#include "run_program.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "help.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

std::string in_quotes(const std::string& word) { return '\'' + word.substr(0, 60) + '\''; }

const Command& find_command(const Command& program, const std::string& path, const std::string& name) {
  Words names;
  for (const Command& each : program.commands) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  if (const std::string likely = nearest(name, names); !likely.empty())
    throw Error(concat("unknown command ", in_quotes(name), ", did you mean '", likely, "'?"));
  throw Error(concat("unknown command ", in_quotes(name), "; `", path, " --help` lists them"));
}

class CommandLine {
 public:
  CommandLine(const Command& command, std::string path, Words words)
      : command_(command), path_(std::move(path)), words_(std::move(words)), help_(help_option(command, path_)) {
    for (const Option& each : command.positionals) {
      if (each.value.repeats) rest_ = &each;
      options_.push_back({&each, {}, {}});
    }
    options_.push_back({&help_, names_of(help_), {}});
    for (const Option& each : command.options) options_.push_back({&each, names_of(each), {}});
  }

  int run() {
    const bool has_commands = !command_.commands.empty();
    const auto shares = rest_ == nullptr ? nullptr : rest_->value.shares;
    const bool stops = has_commands || shares != nullptr;
    Words rest = assign(stops);
    if (shares != nullptr) {
      const auto first = std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word != "--"; });
      if (first != rest.end() && shares(*first)) rest = assign(false);
    }
    for (const Taken& each : options_)
      if (each.option->value.text && !each.words.empty()) return show(*each.option);
    take_mark(rest, stops);
    if (has_commands) {
      if (rest.empty()) throw Error(concat("which command? `", path_, " --help` lists them"));
      const Command& chosen = find_command(command_, path_, rest[0]);
      return CommandLine(chosen, path_ + ' ' + chosen.name, {rest.begin() + 1, rest.end()}).run();
    }
    if (rest_ == nullptr && !rest.empty()) refuse(in_quotes(rest[0]), " is one word too many");
    return command_.run(read(rest));
  }

 private:
  // An option or positional, and the words that are its own.
  struct Taken {
    const Option* option;
    Words names;  // of an option; a positional has none that could be typed
    Words words;
  };

  // A word that names an option: "--steps", "--steps=4", "-N4", "-N=4".
  struct Spelling {
    Taken* taken;
    std::string name;
    std::optional<std::string> value;  // in the same word
  };

  std::optional<Spelling> spelling(const std::string& word) {
    if (word.size() < 2 || word[0] != '-') return std::nullopt;
    const std::size_t end = std::min(word[1] == '-' ? word.find('=') : 2, word.size());
    std::string name = word.substr(0, end);
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');  // --zero_stage is --zero-stage
    for (Taken& each : options_) {
      if (std::find(each.names.begin(), each.names.end(), name) == each.names.end()) continue;
      if (end == word.size()) return Spelling{&each, name, std::nullopt};
      return Spelling{&each, name, word.substr(word[end] == '=' ? end + 1 : end)};
    }
    return std::nullopt;
  }

  // Gives every option its words. Returns those that are left, the mark "--" among them: with `stops` the first
  // of them that is not spelt like an option takes along all behind it.
  Words assign(bool stops) {
    for (Taken& each : options_) each.words.clear();
    Words rest;
    bool options_end = false;
    for (auto word = words_.begin(); word != words_.end();) {
      const bool is_word = options_end || !looks_like_option(*word);
      if (const auto found = options_end ? std::nullopt : spelling(*word)) {
        take(*found, ++word);
      } else if (!options_end && *word == "--") {
        options_end = true;
        rest.push_back(*word++);
      } else if (Taken* const next = is_word ? next_positional() : nullptr) {
        next->words.push_back(*word++);
      } else if (stops && is_word) {
        rest.insert(rest.end(), word, words_.end());
        break;
      } else {
        rest.push_back(*word++);
      }
    }
    return rest;
  }

  // The words of one option; those behind its name begin at `word`, which moves past what it takes.
  void take(const Spelling& found, Words::const_iterator& word) {
    const Option& option = *found.taken->option;
    Words words;
    if (found.value) words.push_back(*found.value);
    if (option.value.count == 0) {
      words.resize(1, "true");
      if (found.name.starts_with("--no-") && (words[0] == "true" || words[0] == "false"))
        words[0] = words[0] == "true" ? "false" : "true";
    }
    const auto count = static_cast<std::size_t>(option.value.count);
    while (words.size() < count && word != words_.end()) words.push_back(*word++);
    if (words.size() < count) refuse_words(option, words);
    found.taken->words.insert(found.taken->words.end(), words.begin(), words.end());
  }

  // The first positional that still waits for its word; not the one that takes all that are left.
  Taken* next_positional() {
    for (Taken& each : options_)
      if (each.names.empty() && each.option != rest_ && each.words.empty()) return &each;
    return nullptr;
  }

  static bool looks_like_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

  // Takes the mark "--" out. A word in front of it that looks like an option is one that there is not; of words that
  // belong to another command line, this holds for the first alone.
  void take_mark(Words& rest, bool are_of_another) const {
    for (auto word = rest.begin(); word != rest.end(); ++word) {
      if (*word == "--") {
        rest.erase(word);
        return;
      }
      if (looks_like_option(*word)) refuse_option(*word);
      if (are_of_another) return;
    }
  }

  // Fills the variables.
  Call read(const Words& rest) const {
    Call call;
    for (const Taken& each : options_)
      if (!each.option->value.text) read(*each.option, each.option == rest_ ? rest : each.words, call);
    return call;
  }

  void read(const Option& option, const Words& words, Call& call) const {
    const Value& value = option.value;
    const std::size_t count = static_cast<std::size_t>(value.count);
    const Words names = names_of(option);
    const bool is_positional = names[0][0] != '-';
    if (words.empty() && option.is_required) refuse(option.names, " is missing");
    if (words.empty()) return;
    if (!value.repeats && words.size() > count) refuse(option.names, " is given twice");
    if (!value.read(words)) refuse_words(option, words);

    Given given = {option.names, {}};
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!is_positional && count > 0 && i % count == 0) given.words.push_back(names.back());
      given.words.push_back(count == 0 ? concat(names[0], '=', words[i]) : words[i]);
    }
    call.push_back(std::move(given));
  }

  static int show(const Option& option) {
    std::cout << option.value.text() << std::flush;
    return 0;
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(concat(parts..., "; see `", path_, " --help`"));
  }

  [[noreturn]] void refuse_words(const Option& option, const Words& words) const {
    std::string got;
    for (const std::string& each : words) got += (got.empty() ? "" : " ") + each;
    refuse(option.names, " expects ", option.value.expects, ", got ", words.empty() ? "nothing" : in_quotes(got));
  }

  [[noreturn]] void refuse_option(const std::string& word) const {
    const bool is_long = word.starts_with("--");
    const std::string name = word.substr(0, is_long ? word.find('=') : 2);
    Words names;
    for (const Taken& each : options_)
      if (!each.option->help.empty()) names.insert(names.end(), each.names.begin(), each.names.end());
    const std::string likely = is_long ? nearest(name, names) : "";
    if (!likely.empty()) throw Error(concat("there is no option ", in_quotes(name), ", did you mean '", likely, "'?"));
    refuse("there is no option ", in_quotes(name));
  }

  const Command& command_;
  std::string path_;
  const Words words_;
  Option help_;
  std::vector<Taken> options_;    // positionals first
  const Option* rest_ = nullptr;  // the positional that takes all words that are left
};

}  // namespace

int run_program(const Command& program, const Words& words) { return CommandLine(program, program.name, words).run(); }

Command help_command(const Command& program) {
  const auto path = std::make_shared<Words>();
  return {.name = "help",
          .help = "What COMMAND --help shows, or the list of commands.",
          .positionals = {{"COMMAND", "", Value::every_word(path.get()), "A command."}},
          .footer = "\nExamples:\n  keel help train\n  keel help docs config",
          .run = [&program, path](const Call&) {
            const Command* command = &program;
            std::string called = program.name;
            for (const std::string& name : *path) {
              command = &find_command(*command, called, name);
              called += ' ' + name;
            }
            std::cout << help_of(*command, called) << std::flush;
            return 0;
          }};
}

}  // namespace keel::cli
