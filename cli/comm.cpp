// `keel comm`: what collectives cost here, by every algorithm.

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "comm_predict.h"
#include "comm_run.h"
#include "comm_sum.h"
#include "comm_table.h"
#include "commands.h"
#include "common_options.h"
#include "draw_schedule.h"
#include "keel/dist/lab/plot.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/signals.h"
#include "launch.h"
#include "launched.h"
#include "ranks.h"

namespace keel::cli {
namespace {

constexpr const char* kCommExamples = R"(
Examples:
  keel comm -N 4                                  all_reduce from 8 bytes to 64 MiB: keel's own and MPI's
  keel comm all -N 4 --algorithms all -e 1M       every collective by every algorithm
  keel launch --hosts a:8,b:8 comm all_reduce -b 1M -e 1G --json here.json
  keel comm -N 4 --threads --ranks-per-node 2 --algorithms ring,hier     two nodes of two ranks, pretended
  keel comm -N 4 --algorithms ring,rhd --delay 200 --bandwidth 100M      as if on a slower network
  keel comm reduce gather -N 4 --root all --op max,mean -i 1M -b 1M -e 8M  every root, sizes in steps of 1 MiB
  keel comm -N 2 --overlap 10 -b 1M               what a rank can compute meanwhile, with ten polls
  keel comm --compare before.json after.json      ratios; * where calls vary less than that
  keel comm --from here.json --plot here.svg
  keel comm --draw ring -N 8 --out ring.html      all_reduce by a ring, step by step
  keel comm reduce --draw tree -N 6 --root 2
  keel comm --sum 256,1,1,1 --dtype bf16          the same four numbers in the order of each algorithm
  keel comm --from two.json,four.json --predict 16,64 --ranks-per-node 4

Numbers are known before, so results are checked to the bit in every dtype. The exit code is 1 where an element was wrong.
docs/comm.md describes the files.
)";

std::string footer() { return '\n' + explain_contestants() + '\n' + explain_columns() + kCommExamples; }

int compare_files(const std::vector<std::string>& names, int width) {
  const lab::Report first = lab::load_report(names[0]), second = lab::load_report(names[1]);
  std::cout << printable_lines(comparison_text(lab::compare(first, second), names[0], names[1], width));
  return 0;
}

int show_files(const CommArguments& arguments) {
  KEEL_CHECK(arguments.json.empty(), "--from reads what --json wrote; leave --json out");
  std::vector<lab::Report> reports;
  for (const std::string& name : arguments.from) reports.push_back(lab::load_report(name));
  if (!arguments.predict.empty()) {
    std::cout << printable_lines(prediction_text(reports, arguments.predict, arguments.ranks_per_node));
    return 0;
  }
  KEEL_CHECK(reports.size() == 1, "--from takes one file, or several with --predict");
  const lab::Report& report = reports.front();
  if (!arguments.csv.empty()) write_text_file(arguments.csv, to_csv(report));
  if (!arguments.plot.empty()) write_text_file(arguments.plot, lab::plot(report));
  const bool has_overlap = std::any_of(report.records.begin(), report.records.end(), [](const lab::Record& record) {
    const std::optional<lab::Timing>& timing = record.out_of_place ? record.out_of_place : record.in_place;
    return timing && timing->overlap;
  });
  const CommTable table(arguments.width(), has_overlap);
  std::string asked;
  for (const lab::Record& record : report.records) {
    if (asked_of(record) != asked)
      std::cout << printable_lines(table.header(asked_of(record), record.ranks, arguments.from.front()));
    asked = asked_of(record);
    std::cout << printable_lines(table.row(record));
  }
  if (!report.complete) std::cout << "# the run ended before all was measured\n";
  return 0;
}

int draw(const CommArguments& arguments) {
  KEEL_CHECK(arguments.collectives.size() == 1, "--draw shows one collective, and ", arguments.collectives.size(),
             " are named");
  draw_schedule({.collective = arguments.collectives.front(),
                 .algorithm = arguments.draw,
                 .out = arguments.out,
                 .ranks = arguments.ranks,
                 .ranks_per_node = arguments.ranks_per_node,
                 .root = arguments.root});
  return 0;
}

// By the algorithms that are named, or by all.
int sum(const Call& call, CommArguments arguments) {
  const bool are_named =
      std::any_of(call.begin(), call.end(), [](const Given& given) { return given.names == "--algorithms"; });
  if (!are_named) arguments.algorithms = {"all"};
  return print_sums(arguments);
}

int run(const Call& call, const CommArguments& arguments) {
  if (!arguments.draw.empty()) return draw(arguments);
  KEEL_CHECK(arguments.out.empty(), "--out is where --draw writes; --json, --csv and --plot name their own files");
  if (!arguments.sum.empty()) return sum(call, arguments);
  if (!arguments.compare.empty()) return compare_files(arguments.compare, arguments.width());
  if (!arguments.from.empty()) return show_files(arguments);
  KEEL_CHECK(arguments.predict.empty(), "--predict needs what was measured: --from FILE, which --json wrote");
  const bool launched = find_launched().has_value();
  if (!launched) read_wish(arguments);  // better said before ranks are started
  if (!launched && !arguments.threads && arguments.ranks > 1)
    return launch_keel(arguments.ranks, with_columns(words_for_ranks("comm", call), arguments.columns));
  const SignalScope signals;
  const std::function<int()> signal = [&] { return signals.received(); };
  const auto work = [&](Communicator& ranks) { return measure_ranks(ranks, arguments, signal); };
  return on_ranks(arguments.threads || !launched ? arguments.ranks : 0, work);
}

// What is measured, among whom, and where it goes.
std::vector<Option> options_of(CommArguments& arguments) {
  return {
      {"-b,--begin", "BYTES", &arguments.begin, "Smallest size."},
      {"-e,--end", "BYTES", &arguments.end, "Largest size."},
      {"-f,--factor", "", &arguments.factor, "From one size to the next."},
      {"-i,--step", "BYTES", &arguments.step, "The same as a fixed number of bytes."},
      {"--algorithms", "NAME", &arguments.algorithms, "Who does it, or all."},
      {"--dtype", "NAME", &arguments.dtypes, "f32, bf16, f16, f64, i32, i64, u8."},
      {"-o,--op", "NAME", &arguments.ops,
       "How numbers are combined: sum, maximum, minimum, product, mean, pairwise, or all."},
      {"-r,--root", "RANK", &arguments.root, "Who gives or gets all, where one does; or all, one after the other."},
      {"-m,--at-once",
       "N",
       {&arguments.at_once, 1, 1024},
       "Calls that begin together; times and bytes are those of one."},
      {"--overlap",
       "POLLS",
       {&arguments.polls, CommArguments::kNoOverlap, 1'000'000},
       "What a rank can compute while a call is under way, with so many polls meanwhile."},
      {"--barrier,--no-barrier", "", &arguments.barrier, "Let all ranks meet before each call; no part of its time."},
      {"-n,--iters",
       "N",
       {&arguments.calls, 1, 1'000'000},
       "Timed calls of each size; 20 to 1000 without it, as fit into 0.1 s."},
      {"-w,--warmup",
       "N",
       {&arguments.warmup, 0, 1'000'000},
       "Calls before them, at least; without --iters they go on for 10 ms."},
      {"--check,--no-check", "", &arguments.check, "Check results (the default)."},

      {"-N", "RANKS", {&arguments.ranks, 1, 1024}, "Ranks to start, where no launcher has."},
      ranks_as_threads(&arguments.threads),
      {"--device", "", &arguments.device, "cpu, cuda, emulated or auto."},
      {"--through-host", "", &arguments.through_host,
       "Between devices through the memory of their processors, also where NCCL is."},
      {"--ranks-per-node",
       "N",
       {&arguments.ranks_per_node, 1, 1024},
       "Count so many ranks as a node, for hier and for the bytes between nodes."},
      delay_option(&arguments.network),
      bandwidth_option(&arguments.network),
      {"--late", "RANK:MS", &arguments.late, "Let a rank come late to each call, to see a straggler: 2:50."},
      {"--corrupt", "RANK:ELEMENT", &arguments.corrupt, "Change an element on a rank, to see the check at work: 1:0."},

      columns_option(&arguments.columns),
      {"--json", "FILE", &arguments.json, "Write all that was measured."},
      {"--csv", "FILE", &arguments.csv, "The records alone, a line each."},
      {"--plot", "FILE", &arguments.plot, "Draw time and bus bandwidth over size, as SVG."},
      {"--draw", "ALGORITHM", &arguments.draw,
       "Measure nothing; write who sends what when, and in which order it is added, as a page to look at."},
      {"--out", "FILE.html", &arguments.out, "With --draw: where the page goes; without it ALGORITHM.html."},
      {"--sum", "NUMBER", &arguments.sum,
       "Measure nothing; add these, one of each rank, by the algorithms, and show each one's order and result."},
      {"--from", "FILE", &arguments.from, "Measure nothing; show, plot or convert what --json wrote."},
      {"--predict",
       "RANKS",
       {&arguments.predict, 1, 1 << 20},
       "With --from: times among so many ranks, of --ranks-per-node, by a line through what was measured."},
      {"--compare", "FILE", Value::words(&arguments.compare, 2),
       "Measure nothing; compare two files that --json wrote."},
  };
}

}  // namespace

Command comm_command() {
  const auto arguments = std::make_shared<CommArguments>();
  return {.name = "comm",
          .help = "Measure collectives: times, bandwidths, bytes, right results.",
          .positionals = {{"COLLECTIVE", "", &arguments->collectives, "all_reduce and others, or all."}},
          .options = options_of(*arguments),
          .footer = footer(),
          .run = [arguments](const Call& call) { return run(call, *arguments); }};
}

}  // namespace keel::cli
