#include "help.h"

#include <string_view>

#include "keel/config/pages.h"

namespace keel::cli {
namespace {

constexpr std::size_t kColumn = 30;  // where explanations begin

std::string row(const std::string& head, const std::string& help) {
  std::string line = "  " + head;
  if (line.size() >= kColumn) line += '\n' + std::string(kColumn, ' ');
  else line.resize(kColumn, ' ');
  return line + help + '\n';
}

// "N:INT in [1 - 1024]=4".
std::string describe_value(const Option& option, bool is_positional) {
  const Value& value = option.value;
  if (value.count == 0) return "";
  std::string text = option.placeholder;
  if (text.empty()) text = value.type;
  else if (value.type.find(' ') != std::string::npos) text += ':' + value.type;
  if (value.is_list && !is_positional) text += ",...";
  if (!value.initial.empty()) text += '=' + value.initial;
  if (value.repeats && is_positional) text += " ...";
  if (value.count > 1) text += " x " + std::to_string(value.count);
  return ' ' + text + (option.is_required ? " REQUIRED" : "");
}

// Of a command, or of those that it has.
std::string sections_of(const Command& command, const std::string& path) {
  std::string text;
  for (const Command& each : command.commands) text += sections_of(each, path + ' ' + each.name);
  if (!command.commands.empty()) return text;
  std::string rows;
  const auto add = [&](const Option& option, bool is_positional) {
    if (option.help.empty()) return;
    rows += "| `" + table_cell(option.names + describe_value(option, is_positional)) + "` | " +
            table_cell(option.help) + " |\n";
  };
  for (const Option& each : command.positionals) add(each, true);
  for (const Option& each : command.options) add(each, false);
  if (!rows.empty()) rows = "\n| option | meaning |\n|---|---|\n" + rows;
  return "\n## " + path + "\n\n" + command.help + '\n' + rows;
}

std::string usage_of(const Command& command, const std::string& path) {
  std::string line = "Usage: " + path + " [OPTIONS]";
  for (const Option& each : command.positionals) {
    const std::string name = each.names + (each.value.repeats ? "..." : "");
    line += each.is_required ? ' ' + name : " [" + name + ']';
  }
  return line + (command.commands.empty() ? "\n" : " SUBCOMMAND\n");
}

}  // namespace

Option help_option(const Command& command, const std::string& path) {
  return {"-h,--help", "", Value::shown([&command, path] { return help_of(command, path); }),
          "Show this help and end."};
}

std::string help_of(const Command& command, const std::string& path) {
  std::string text = command.help + '\n' + usage_of(command, path);
  if (!command.positionals.empty()) text += "\nPositionals:\n";
  for (const Option& each : command.positionals) text += row(each.names + describe_value(each, true), each.help);
  text += "\nOptions:\n";
  const Option help = help_option(command, path);
  text += row(help.names, help.help);
  for (const Option& each : command.options)
    if (!each.help.empty()) text += row(each.names + describe_value(each, false), each.help);
  if (!command.commands.empty()) text += "\nSubcommands:\n";
  for (const Command& each : command.commands) text += row(each.name, each.help);
  return command.footer.empty() ? text : text + '\n' + command.footer + '\n';
}

std::string commands_reference(const Command& program) {
  std::string text = "# Commands\n\n`" + program.name + " COMMAND --help` says the same, with examples.\n";
  for (const Command& each : program.commands) text += sections_of(each, program.name + ' ' + each.name);
  return text + "\nThis page is written by `keel docs commands`.\n";
}

}  // namespace keel::cli
