// `keel docs`: reference pages that are generated from the program itself.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>

#include "commands.h"
#include "keel/dist/lab/report.h"
#include "keel/trainer/schema.h"

namespace keel::cli {

void add_docs(CLI::App& program) {
  CLI::App* docs = program.add_subcommand("docs", "Print a reference page that is made from the program.");
  docs->require_subcommand(1);
  docs->footer("\nExample:\n  keel docs config > docs/config.md");
  docs->add_subcommand("config", "All keys of a configuration, as Markdown.")->callback([] {
    std::cout << config_reference();
  });
  docs->add_subcommand("schedules", "All learning-rate schedules, as Markdown.")->callback([] {
    std::cout << schedule_reference();
  });
  docs->add_subcommand("comm-schema", "What `keel comm --json` writes, as a JSON Schema.")->callback([] {
    std::cout << lab::report_schema();
  });
}

}  // namespace keel::cli
