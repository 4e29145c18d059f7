#include "run_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

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

// CLI11 says which words belong to which option of a command; what they may be is known to Value.
class CommandLine {
 public:
  CommandLine(const Command& command, std::string path, Words words)
      : command_(command), path_(std::move(path)), words_(std::move(words)), help_(help_option(command, path_)) {
    app_.set_help_flag();  // none of CLI11's
    app_.allow_extras();
    for (const Option& each : command.positionals) {
      if (each.value.repeats) options_.emplace_back(rest_ = &each, nullptr);
      else add(each, app_.add_option(concat('#', options_.size())));  // a name that no option has
    }
    add_option(help_);
    for (const Option& each : command.options) add_option(each);
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
    for (const auto& [option, given] : options_)
      if (option->value.text && !given->empty()) return show(*option);
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
  void add_option(const Option& option) {
    if (option.value.count == 0) {
      std::string names;
      for (const std::string& name : names_of(option))
        names += concat(names.empty() ? "" : ",", name.starts_with("--no-") ? "!" : "", name);
      add(option, app_.add_flag(names));
    } else {
      add(option, app_.add_option(option.names)->type_size(option.value.count));
    }
  }

  void add(const Option& option, CLI::Option* given) {
    given->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->type_name(option.value.type);
    options_.emplace_back(&option, given);
  }

  // Gives every option its words. Returns those that are left: with `stops` the first such word and all behind it.
  Words assign(bool stops) {
    app_.prefix_command(stops);
    try {
      app_.parse(Words(words_.rbegin(), words_.rend()));
    } catch (const CLI::ParseError& error) {
      refuse(error.what());  // the words end where an option needs one
    }
    return app_.remaining();
  }

  // Takes the mark "--" out. A word in front of it that looks like an option is one that there is not; of words that
  // belong to another command line, this holds for the first alone.
  void take_mark(Words& rest, bool are_of_another) const {
    for (auto word = rest.begin(); word != rest.end(); ++word) {
      if (*word == "--") {
        rest.erase(word);
        return;
      }
      if (word->size() > 1 && word->front() == '-') refuse_option(*word);
      if (are_of_another) return;
    }
  }

  // Fills the variables.
  Call read(const Words& rest) const {
    Call call;
    for (const auto& [option, given] : options_)
      if (!option->value.text) read(*option, given == nullptr ? rest : given->results(), call);
    return call;
  }

  void read(const Option& option, Words words, Call& call) const {
    const Value& value = option.value;
    const std::size_t count = static_cast<std::size_t>(value.count);
    const Words names = names_of(option);
    const bool is_positional = names[0][0] != '-';
    if (words.empty() && option.is_required) refuse(option.names, " is missing");
    if (words.empty()) return;
    if (!value.repeats && words.size() > count) refuse(option.names, " is given twice");
    if (names[0].size() == 2 && !is_positional)  // "-N=4"
      for (std::string& word : words)
        if (word.starts_with('=')) word.erase(0, 1);
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
    for (const auto& [option, given] : options_)
      if (!option->help.empty() && option->names[0] == '-')
        for (std::string& known : names_of(*option)) names.push_back(std::move(known));
    const std::string likely = is_long ? nearest(name, names) : "";
    if (!likely.empty()) throw Error(concat("there is no option ", in_quotes(name), ", did you mean '", likely, "'?"));
    refuse("there is no option ", in_quotes(name));
  }

  const Command& command_;
  std::string path_;
  Words words_;
  Option help_;
  CLI::App app_;
  std::vector<std::pair<const Option*, CLI::Option*>> options_;  // positionals first
  const Option* rest_ = nullptr;  // the positional that takes all words that are left; CLI11 does not know it
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
