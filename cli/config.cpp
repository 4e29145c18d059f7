// `keel config`: a configuration from another trainer's file, or from answers.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "commands.h"
#include "common_options.h"
#include "config_questions.h"
#include "keel/config/resolver.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/load.h"
#include "program_keys.h"

namespace keel::cli {
namespace {

constexpr const char* kConfigFooter = R"(
Without --from it asks which task, for what the task has no default for, and for what a run needs, on the terminal or
line by line from a pipe; an empty line takes the default in brackets. On a terminal what is wrong is asked again. With --from the standard output is keel's YAML, below a comment for each key of the file: taken, mapped to
keel's, yours (KEY=VALUE says it) or refused. docs/foreign.md has every key of every kind of file.

Examples:
  keel config                                  asks, and writes c.yaml
  keel config --defaults data.path=corpus.txt steps=1000
  keel config --defaults task.type=supervised data.path=table.csv epochs=10 'model.heads=[{name: price}]'
  keel config --from hps.yaml steps=1000 data.path=corpus.txt
  keel config --from ds.json --ranks 8 --out c.yaml)";

struct ConfigArguments {
  std::string from, out;
  Words overrides;
  int ranks = 0;
  bool defaults = false;
};

void refuse_to_replace(const std::string& file) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(file, error)))
    throw Error(printable(concat("'", file, "' is there already, and is not replaced; name another by --out")));
}

// "hps.yaml:3  hps.optimizer.lr: 1e-3  mapped  optimizer.lr: 1e-3", in columns.
std::string table_of(const ForeignTranslation& translation, std::string_view before) {
  std::size_t places = 0, keys = 0;
  const auto place = [](const ForeignTold& told) { return concat(told.file, ':', told.line); };
  const auto key = [](const ForeignTold& told) {
    return told.key.empty() ? std::string("(no key)") : concat(told.key, ": ", told.value.substr(0, 40));
  };
  for (const ForeignTold& told : translation.told) {
    places = std::max(places, place(told).size());
    keys = std::max(keys, key(told).size());
  }
  std::string table;
  for (const ForeignTold& told : translation.told)
    table += concat(before,
                    printable(fmt::format("{:<{}}  {:<{}}  {:<7}  {}", place(told), places, key(told), keys,
                                          name_of(told.verdict), told.text)),
                    '\n');
  return table;
}

// Keys that have to be added before a run can begin are notes; everything else that is wrong is an Error.
Words missing_keys(const ForeignTranslation& translation, const ConfigArguments& arguments) {
  Words missing;
  try {
    (void)config_of(program_keys(), translation, arguments.from, arguments.overrides);
  } catch (const Error& error) {
    std::istringstream lines(error.what());
    std::string wrong;
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with(kMissingValue)) missing.push_back(line);
      else wrong += concat(wrong.empty() ? "" : "\n", line);
    }
    if (!wrong.empty()) throw Error(wrong, error.kind());
  }
  return missing;
}

void translate(const ConfigArguments& arguments) {
  if (!arguments.out.empty()) refuse_to_replace(arguments.out);
  const ForeignTranslation translation =
      translate_file(program_keys(), arguments.from, arguments.overrides, arguments.ranks);
  if (translation.is_refused()) {
    std::cout << table_of(translation, "# ") << std::flush;
    throw Error(MessageLines{translation.problems()}, translation.problem_kind);
  }
  const Words missing = missing_keys(translation, arguments);
  const std::string yaml =
      concat(table_of(translation, "# "),
             translation.yaml(program_keys()->schema(program_keys()->tasks().standard().name), arguments.overrides));
  if (arguments.out.empty()) std::cout << yaml << std::flush;
  else write_text_file(arguments.out, yaml);
  for (const std::string& line : missing)
    std::cerr << concat("keel: note: ", printable(line), "; add it before you train\n");
  if (!arguments.out.empty()) std::cout << table_of(translation, "") << arguments.out << " is written\n";
}

void ask(const ConfigArguments& arguments) {
  const std::string out = arguments.out.empty() ? "c.yaml" : arguments.out;
  refuse_to_replace(out);
  const Asking asking = {arguments.overrides, arguments.defaults, ::isatty(STDIN_FILENO) == 1};
  const Answers answers = ask_questions(program_keys(), asking, std::cin, std::cout);
  (void)parse_config(program_keys(), answers.yaml, out);
  write_text_file(out, answers.yaml);
  std::cout << out << " is written: keel " << (answers.ranks > 1 ? concat("launch -N ", answers.ranks) : "train") << ' '
            << out << '\n';
}

}  // namespace

Command config_command() {
  const auto arguments = std::make_shared<ConfigArguments>();
  return {.name = "config",
          .help = "Make a configuration: from another trainer's file, or by asking.",
          .positionals = {overrides(&arguments->overrides)},
          .options = {{"--from", "FILE", &arguments->from, "Another trainer's file; without it keel asks."},
                      {"--out", "C.yaml", &arguments->out,
                       "Where to write; a file that is there is not replaced. Without it c.yaml, or with --from the "
                       "standard output."},
                      {"--ranks",
                       "N",
                       {&arguments->ranks, 1, 1'000'000},
                       "Ranks that will train, where the file counts rows of each; as many as it says without it."},
                      {"--defaults", "", &arguments->defaults, "Ask nothing that has a default."}},
          .footer = kConfigFooter,
          .run = [arguments](const Call&) {
            if (arguments->from.empty()) ask(*arguments);
            else translate(*arguments);
            return 0;
          }};
}

}  // namespace keel::cli
