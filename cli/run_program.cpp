#include "run_program.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "help.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  throw Error(concat(parts..., "; see `", path, " --help`"));
}

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

// What was given for an option.
struct Found {
  std::string name;  // one of its names
  Words values;
  Words typed;
};

class CommandLine {
 public:
  CommandLine(const Command& command, std::string path, Words words)
      : command_(command), path_(std::move(path)), words_(std::move(words)), help_(help_option(command, path_)) {}

  int run() {
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      const bool is_option = !options_ended_ && word.size() > 1 && word[0] == '-';
      if (is_option && word == "--") {
        options_ended_ = true;
        if (shares_) take_positional(word);
      } else if (is_option) {
        if (const Option* shown = take_option(word)) return show(*shown);
      } else if (!command_.commands.empty()) {
        const Command& chosen = find_command(command_, path_, word);
        return CommandLine(chosen, path_ + ' ' + chosen.name, {words_.begin() + at(), words_.end()}).run();
      } else {
        take_positional(word);
      }
    }
    if (!command_.commands.empty()) throw Error(concat("which command? `", path_, " --help` lists them"));
    return command_.run(read());
  }

 private:
  std::ptrdiff_t at() const { return static_cast<std::ptrdiff_t>(at_); }

  static int show(const Option& option) {
    std::cout << option.value.text() << std::flush;
    return 0;
  }

  const Option* find_option(const std::string& name) const {
    const auto has_name = [&](const Option& option) {
      const Words names = names_of(option);
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (has_name(help_)) return &help_;
    const auto found = std::find_if(command_.options.begin(), command_.options.end(), has_name);
    return found == command_.options.end() ? nullptr : &*found;
  }

  [[noreturn]] void refuse_option(const std::string& name) const {
    Words names = names_of(help_);
    for (const Option& each : command_.options)
      if (!each.help.empty())
        for (std::string& known : names_of(each)) names.push_back(std::move(known));
    const std::string likely = name.starts_with("--") ? nearest(name, names) : "";
    if (!likely.empty()) throw Error(concat("there is no option ", in_quotes(name), ", did you mean '", likely, "'?"));
    refuse(path_, "there is no option ", in_quotes(name));
  }

  // Returns an option that shows a text instead of being read.
  const Option* take_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const std::string name = word.substr(0, is_long ? word.find('=') : 2);
    const Option* option = find_option(name);
    if (option == nullptr && shares_) {
      take_positional(word);
      return nullptr;
    }
    if (option == nullptr) refuse_option(name);
    std::string attached = word.substr(name.size());
    const bool is_attached = !attached.empty();
    if (attached.starts_with('=')) attached.erase(0, 1);
    take_values(*option, name, is_attached ? &attached : nullptr);
    return option->value.text ? option : nullptr;
  }

  void take_values(const Option& option, const std::string& name, const std::string* attached) {
    const Value& value = option.value;
    Found& found = found_[&option];
    if (!found.typed.empty() && !value.repeats) refuse(path_, name, " is given twice");
    found.name = name;
    if (value.count == 0) {
      if (attached != nullptr) refuse(path_, name, " takes no value, got ", in_quotes(*attached));
      found.values.push_back(name.starts_with("--no-") ? "false" : "true");
      found.typed.push_back(name);
      return;
    }
    Words values;
    if (attached != nullptr) values.push_back(*attached);
    const std::size_t count = static_cast<std::size_t>(value.count);
    while (values.size() < count && at_ < words_.size()) values.push_back(words_[at_++]);
    if (values.size() < count) refuse_values(name, value, values);
    const bool is_long = name.starts_with("--");
    found.typed.push_back(is_long ? concat(name, '=', values[0]) : name);
    found.typed.insert(found.typed.end(), values.begin() + (is_long ? 1 : 0), values.end());
    found.values.insert(found.values.end(), values.begin(), values.end());
  }

  [[noreturn]] void refuse_values(const std::string& name, const Value& value, const Words& values) const {
    std::string got;
    for (const std::string& each : values) got += (got.empty() ? "" : " ") + each;
    refuse(path_, name, " expects ", value.expects, ", got ", values.empty() ? "nothing" : in_quotes(got));
  }

  void take_positional(const std::string& word) {
    if (next_positional_ == command_.positionals.size()) refuse(path_, in_quotes(word), " is one word too many");
    const Option& positional = command_.positionals[next_positional_];
    if (!positional.value.repeats) ++next_positional_;
    Found& found = found_[&positional];
    const bool is_first = found.typed.empty();
    found.name = positional.names;
    const auto add = [&](const std::string& each) {
      found.values.push_back(each);
      found.typed.push_back(each);
    };
    add(word);
    if (!is_first || positional.value.shares == nullptr) return;
    shares_ = positional.value.shares(word);
    while (!shares_ && at_ < words_.size()) add(words_[at_++]);
  }

  // Fills the variables.
  Call read() const {
    Call call;
    for (const std::vector<Option>* options : {&command_.positionals, &command_.options})
      for (const Option& option : *options) {
        const auto found = found_.find(&option);
        if (found == found_.end()) {
          if (option.is_required) refuse(path_, option.names, " is missing");
          continue;
        }
        const auto& [name, values, typed] = found->second;
        if (!option.value.read(values)) refuse_values(name, option.value, values);
        call.push_back({option.names, typed});
      }
    return call;
  }

  const Command& command_;
  std::string path_;
  Words words_;
  Option help_;
  std::size_t at_ = 0, next_positional_ = 0;
  bool options_ended_ = false;
  bool shares_ = false;  // words that are unknown belong to somebody else
  std::map<const Option*, Found> found_;
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
