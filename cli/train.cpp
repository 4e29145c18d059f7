// `keel train`: one run from a configuration, with progress on the console.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/schema.h"
#include "keel/trainer/signals.h"
#include "keel/trainer/trainer.h"
#include "machine.h"

namespace keel::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  keel train c.yaml
  keel train c.yaml steps=500 optimizer.lr=3e-4 'model={layers: 2, heads: 2, width: 64}'
  keel train c.yaml resume=auto        go on where the run was stopped
  keel train c.yaml --print-config     what would be trained, with every default filled in

Ctrl-C and SIGTERM finish the step and save; a second Ctrl-C ends at once.)";

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool print_config = false;
};

class Console : public ConsoleObserver {
 public:
  explicit Console(const SignalScope& signals)
      : ConsoleObserver(std::cout, console_options(STDOUT_FILENO)), signals_(signals) {}
  bool stop_requested() override { return signals_.received() != 0; }

 private:
  const SignalScope& signals_;
};

// "memory: peak 12.3 MiB (parameter 2.0 MiB, ...), resident 80.1 MiB". The parts peak at different moments.
std::string memory_line(const TrainResult& result) {
  const MemoryReport& memory = result.memory;
  std::string parts;
  for (int i = 0; i < kPurposeCount; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    if (const std::size_t peak = memory[purpose].peak; peak > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name_of(purpose), binary_size(double(peak)));
  }
  return fmt::format("memory: peak {} ({}), resident {}", binary_size(double(memory.total.peak)), parts,
                     binary_size(double(result.peak_resident_bytes)));
}

int run(const Arguments& arguments) {
  const Config config = load_config(arguments.config, arguments.overrides);
  if (arguments.print_config) {
    std::cout << to_yaml(config);
    return 0;
  }
  const SignalScope signals;
  TrainResult result;
  {
    Console console(signals);
    result = train(config, console);
  }
  std::cout << memory_line(result) << '\n';
  if (result.end != TrainEnd::stopped) return 0;
  std::cout << "stopped by " << (signals.received() == SIGINT ? "Ctrl-C" : "SIGTERM") << "; to go on: keel train "
            << config.run << "/config.yaml resume=auto\n";
  return 128 + signals.received();
}

}  // namespace

void add_train(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("train", "Train a model as a YAML file describes it.");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG.yaml", arguments->config, "The configuration.")->required();
  command->add_option("KEY=VALUE", arguments->overrides, "Values that replace those of the file.");
  command->add_flag("--print-config", arguments->print_config, "Print the resolved configuration and end.");
  command->add_flag_callback(
      "--help-config",
      [] {
        std::cout << config_help();
        throw CLI::Success();
      },
      "List all keys of a configuration and end.");
  command->footer(kFooter);
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace keel::cli
