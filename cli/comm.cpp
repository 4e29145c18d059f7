// `keel comm`: what collectives cost here, by every algorithm.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "comm_predict.h"
#include "comm_run.h"
#include "comm_table.h"
#include "commands.h"
#include "keel/dist/lab/plot.h"
#include "keel/runtime/file.h"
#include "keel/trainer/signals.h"
#include "launch.h"
#include "launched.h"
#include "ranks.h"

namespace keel::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  keel comm -N 4                                  all_reduce from 8 bytes to 64 MiB: keel's own and MPI's
  keel comm all -N 4 --algorithms all -e 1M       every collective by every algorithm
  keel launch --hosts a:8,b:8 comm all_reduce -b 1M -e 1G --json here.json
  keel comm -N 4 --threads --ranks-per-node 2 --algorithms ring,hier     two nodes of two ranks, pretended
  keel comm -N 4 --algorithms ring,rhd --delay 200 --bandwidth 100M      as if on a slower network
  keel comm --compare before.json after.json      ratios; * where calls vary less than that
  keel comm --from here.json --plot here.svg
  keel comm --from two.json,four.json --predict 16,64 --ranks-per-node 4

Numbers are known before, so results are checked to the bit in every dtype. The exit code is 1 where an element was wrong.
docs/comm.md describes the files.
)";

std::string footer() { return '\n' + explain_contestants() + '\n' + explain_columns() + kExamples; }

int compare_files(const std::vector<std::string>& names) {
  const lab::Report first = lab::load_report(names[0]), second = lab::load_report(names[1]);
  std::cout << comparison_text(lab::compare(first, second), names[0], names[1]);
  return 0;
}

int show_files(const CommArguments& arguments) {
  KEEL_CHECK(arguments.json.empty(), "--from reads what --json wrote; leave --json out");
  std::vector<lab::Report> reports;
  for (const std::string& name : arguments.from) reports.push_back(lab::load_report(name));
  if (!arguments.predict.empty()) {
    std::cout << prediction_text(reports, arguments.predict, arguments.ranks_per_node);
    return 0;
  }
  KEEL_CHECK(reports.size() == 1, "--from takes one file, or several with --predict");
  const lab::Report& report = reports.front();
  if (!arguments.csv.empty()) write_text_file(arguments.csv, to_csv(report));
  if (!arguments.plot.empty()) write_text_file(arguments.plot, lab::plot(report));
  std::string_view collective;
  for (const lab::Record& record : report.records) {
    if (record.collective != collective)
      std::cout << table_header(record.collective, record.ranks, arguments.from.front());
    collective = record.collective;
    std::cout << table_row(record);
  }
  if (!report.complete) std::cout << "# the run ended before all was measured\n";
  return 0;
}

int run(const CLI::App& command, const CommArguments& arguments) {
  if (!arguments.compare.empty()) return compare_files(arguments.compare);
  if (!arguments.from.empty()) return show_files(arguments);
  KEEL_CHECK(arguments.predict.empty(), "--predict needs what was measured: --from FILE, which --json wrote");
  const bool launched = find_launched().has_value();
  if (!launched) read_wish(arguments);  // better said before ranks are started
  if (!launched && !arguments.threads && arguments.ranks > 1)
    return launch_keel(arguments.ranks, words_for_ranks(command));
  const SignalScope signals;
  const std::function<int()> signal = [&] { return signals.received(); };
  const auto work = [&](Communicator& ranks) { return measure_ranks(ranks, arguments, signal); };
  return on_ranks(arguments.threads || !launched ? arguments.ranks : 0, work);
}

void add_what(CLI::App& command, CommArguments& arguments) {
  command.add_option("COLLECTIVE", arguments.collectives, "all_reduce and others, or all.")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("-b,--begin", arguments.begin, "Smallest size.")->capture_default_str()->type_name("BYTES");
  command.add_option("-e,--end", arguments.end, "Largest size.")->capture_default_str()->type_name("BYTES");
  command.add_option("-f,--factor", arguments.factor, "From one size to the next.")->capture_default_str();
  command.add_option("--algorithms", arguments.algorithms, "Who does it, or all.")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAMES");
  command.add_option("--dtype", arguments.dtypes, "f32, bf16, f16, f64, i32, i64, u8.")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAMES");
  command
      .add_option("-n,--iters", arguments.calls, "Timed calls of each size; 20 to 1000 without it, as fit into 0.1 s.")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command
      .add_option("-w,--warmup", arguments.warmup, "Calls before them, at least; without --iters they go on for 10 ms.")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->type_name("N");
  command.add_flag("--check,!--no-check", arguments.check, "Check results (the default).");
}

void add_where(CLI::App& command, CommArguments& arguments) {
  command.add_option("-N", arguments.ranks, "Ranks to start, where no launcher has.")
      ->transform(without_equals)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("RANKS");
  command.add_flag("--threads", arguments.threads, "Ranks as threads of one process, without MPI.");
  command.add_option("--device", arguments.device, "cpu, cuda, emulated or auto.")->capture_default_str();
  command.add_flag("--through-host", arguments.through_host,
                   "Between devices through the memory of their processors, also where NCCL is.");
  command
      .add_option("--ranks-per-node", arguments.ranks_per_node,
                  "Count so many ranks as a node, for hier and for the bytes between nodes.")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  add_network(command, arguments.network);
  command.add_option("--late", arguments.late, "Let a rank come late to each call, to see a straggler: 2:50.")
      ->type_name("RANK:MS");
  command.add_option("--corrupt", arguments.corrupt, "Change an element on a rank, to see the check at work: 1:0.")
      ->type_name("RANK:ELEMENT");
}

void add_files(CLI::App& command, CommArguments& arguments) {
  command.add_option("--json", arguments.json, "Write all that was measured.")->type_name("FILE");
  command.add_option("--csv", arguments.csv, "The records alone, a line each.")->type_name("FILE");
  command.add_option("--plot", arguments.plot, "Draw time and bus bandwidth over size, as SVG.")->type_name("FILE");
  command.add_option("--from", arguments.from, "Measure nothing; show, plot or convert what --json wrote.")
      ->delimiter(',')
      ->type_name("FILE");
  command
      .add_option("--predict", arguments.predict,
                  "With --from: times among so many ranks, of --ranks-per-node, by a line through what was measured.")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("RANKS");
  command.add_option("--compare", arguments.compare, "Measure nothing; compare two files that --json wrote.")
      ->expected(2)
      ->type_name("FILE");
}

}  // namespace

void add_comm(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("comm", "Measure collectives: times, bandwidths, bytes, right results.");
  const auto arguments = std::make_shared<CommArguments>();
  add_what(*command, *arguments);
  add_where(*command, *arguments);
  add_files(*command, *arguments);
  command->footer(footer);
  command->callback([command, arguments, &exit_code] { exit_code = run(*command, *arguments); });
}

}  // namespace keel::cli
