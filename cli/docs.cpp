// `keel docs`: reference pages that are generated from the program itself.

#include <functional>
#include <iostream>
#include <string>

#include "commands.h"
#include "formats.h"
#include "help.h"
#include "keel/dist/lab/report.h"
#include "keel/runtime/error.h"
#include "keel/trainer/foreign/translation.h"
#include "keel/trainer/schema.h"

namespace keel::cli {
namespace {

Command page(const char* name, const char* help, const std::function<std::string()>& text, const char* example) {
  return {.name = name,
          .help = help,
          .footer = concat("\nExample:\n  keel docs ", name, " > ", example),
          .run = [text](const Call&) {
            std::cout << text();
            return 0;
          }};
}

}  // namespace

Command commands_page(const Command& program) {
  return page(
      "commands", "All commands with their options, as Markdown.", [&program] { return commands_reference(program); },
      "docs/commands.md");
}

Command docs_command() {
  return {
      .name = "docs",
      .help = "Print a reference page that is made from the program.",
      .footer = "\nExample:\n  keel docs config > docs/config.md",
      .commands = {
          page("config", "All keys of a configuration, as Markdown.", config_reference, "docs/config.md"),
          page("schedules", "All learning-rate schedules, as Markdown.", schedule_reference, "docs/schedules.md"),
          page("foreign", "Files of other trainers, key by key, as Markdown.", foreign_reference, "docs/foreign.md"),
          page("formats", "What number types can hold, as Markdown.", formats_reference, "docs/formats.md"),
          page("trackers", "All types of trackers, as Markdown.", tracker_reference, "docs/trackers.md"),
          page("comm-schema", "What `keel comm --json` writes, as a JSON Schema.", lab::report_schema,
               "docs/comm.schema.json")}};
}

}  // namespace keel::cli
