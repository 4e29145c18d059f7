#include "comm_table.h"

#include <fmt/core.h>

#include "keel/dist/comm/algorithm_names.h"
#include "table.h"

namespace keel::cli {
namespace {

using lab::Record;
using lab::Timing;

struct Column {
  std::string_view head, unit;
  int width;
  int rank;                  // see columns_that_fit()
  std::string_view meaning;  // empty: that of the first column of this name
};
constexpr int kInPlace = 3;  // the rank of its columns
constexpr int kOverlap = 8;
constexpr Column kColumns[] = {
    {"size", "(B)", 11, 0, "S: bytes of the whole tensor, the larger of what a rank gives and gets"},
    {"count", "(elements)", 11, 5, "of the whole tensor"},
    {"type", "", 5, 0, "of the elements"},
    {"algorithm", "", 10, 0, "who did it, see below"},
    {"time", "(us)", 10, 0, "of a call: each rank's mean, averaged over ranks; first out of place, then in place"},
    {"algbw", "(GB/s)", 8, 0, "S / time, in 10^9 bytes a second"},
    {"busbw", "(GB/s)", 8, 0, "algbw times a factor that makes it comparable to what links carry, see below"},
    {"#wrong", "", 7, 0, "elements of a call that are not what they must be, on all ranks; N/A: not checked"},
    {"time", "(us)", 10, kInPlace, ""},
    {"algbw", "(GB/s)", 8, kInPlace, ""},
    {"busbw", "(GB/s)", 8, kInPlace, ""},
    {"#wrong", "", 7, kInPlace, ""},
    {"overlap", "(%)", 8, kOverlap, "share of a call's time that a rank has for computing; with --overlap"},
    {"min", "(us)", 10, 6, "the fastest rank's mean; this and what follows: out of place, where that is offered"},
    {"max", "(us)", 10, 6, "the slowest rank's mean"},
    {"p50", "(us)", 10, 2, "median of calls, each as its slowest rank saw it"},
    {"p95", "(us)", 10, 1, "95th percentile of them"},
    {"inside", "(B)", 11, 7,
     "that a call sends to ranks of the same node, of the rank that sends most; N/A: not known"},
    {"between", "(B)", 11, 7, "the same to ranks of other nodes"},
    {"skew", "(us)", 9, 4, "from the first rank's asking to the last's, median over calls"},
    {"late", "", 10, 4, "the rank that asked last most often, and in how many of the calls"},
};
constexpr std::size_t kFirstTiming = 4, kFirstInPlace = 8;

std::string number(double value) {
  const int digits = value < 10 ? 2 : value < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, digits);
}
std::string optional_number(const std::optional<std::int64_t>& value) {
  return value ? fmt::format("{}", *value) : "N/A";
}

void add_timing(std::vector<std::string>& cells, const std::optional<Timing>& timing) {
  if (!timing) return cells.insert(cells.end(), 4, "-"), void();
  cells.push_back(number(timing->time_us));
  cells.push_back(fmt::format("{:.2f}", timing->algbw));
  cells.push_back(fmt::format("{:.2f}", timing->busbw));
  cells.push_back(optional_number(timing->wrong));
}

// "all_reduce  2 (n - 1) / n"
std::string factors() {
  std::string text;
  for (const lab::Exercise& exercise : lab::exercises())
    text += fmt::format("  {:<15} {}\n", exercise.name, exercise.factor);
  return text;
}

}  // namespace

std::string explain_columns() {
  std::string text = "Columns:\n";
  for (const Column& column : kColumns)
    if (!column.meaning.empty()) text += fmt::format("  {:<15} {}\n", column.head, column.meaning);
  text += "\nbusbw / algbw for n ranks (PERFORMANCE.md of NVIDIA's nccl-tests):\n" + factors();
  return text;
}

std::string explain_contestants() {
  std::string text = "Algorithms:\n";
  for (const AlgorithmName& one : algorithm_names()) text += fmt::format("  {:<15} {}\n", one.name, one.meaning);
  return text;
}

CommTable::CommTable(int width, bool shows_overlap) {
  std::vector<ColumnWish> wishes;
  for (const Column& column : kColumns)
    wishes.push_back({column.width, shows_overlap && column.rank == kOverlap ? 0 : column.rank});
  shown_ = columns_that_fit(wishes, width);
}

std::string CommTable::line_of(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < std::size(kColumns); ++i)
    if (shown_[i]) line += fmt::format(" {:>{}}", cells[i], kColumns[i].width);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string CommTable::header(std::string_view asked, std::int64_t ranks, std::string_view where) const {
  std::vector<std::string> heads, units;
  for (const Column& column : kColumns) {
    heads.emplace_back(column.head);
    units.emplace_back(column.unit);
  }
  std::string text = fmt::format("# {} among {} rank{}, {}\n", asked, ranks, ranks == 1 ? "" : "s", where);
  if (shown_[kFirstInPlace]) {
    // Above the four columns of each.
    int before = 0, four = 0;
    for (std::size_t i = 0; i < kFirstInPlace; ++i)
      if (shown_[i]) (i < kFirstTiming ? before : four) += kColumns[i].width + 1;
    text += fmt::format("#{:>{}}{:>{}}{:>{}}\n", "", before - 1, "out of place", four, "in place", four);
  }
  std::string names = line_of(heads), scales = line_of(units);
  names[0] = scales[0] = '#';
  return text + names + scales;
}

std::string CommTable::row(const Record& record) const {
  std::vector<std::string> cells = {fmt::format("{}", record.bytes), fmt::format("{}", record.count), record.dtype,
                                    record.algorithm};
  const std::optional<Timing>& one = record.out_of_place ? record.out_of_place : record.in_place;
  add_timing(cells, shown_[kFirstInPlace] ? record.out_of_place : one);
  add_timing(cells, record.in_place);
  const Timing timing = one.value_or(Timing{});
  cells.push_back(timing.overlap ? fmt::format("{:.0f}", *timing.overlap) : "-");
  for (const double value : {timing.min_us, timing.max_us, timing.p50_us, timing.p95_us})
    cells.push_back(number(value));
  cells.push_back(optional_number(record.wire_inside_bytes));
  cells.push_back(optional_number(record.wire_between_bytes));
  cells.push_back(number(timing.skew_us));
  cells.push_back(timing.straggler < 0 ? "-"
                                       : fmt::format("{} ({:.0f}%)", timing.straggler, 100 * timing.straggler_share));
  return line_of(cells);
}

std::string comparison_text(const lab::Comparison& comparison, const std::string& first, const std::string& second,
                            int width) {
  std::string text = fmt::format("# second / first; first: {}, second: {}\n", first, second);
  std::vector<TableColumn> columns = {
      {"", "collective", 0, true}, {"", "algorithm", 0, true}, {"", "type"},       {"", "ranks"}, {"size", "(B)"},
      {"", "", 0, true},           {"first", "(us)"},          {"second", "(us)"}, {"", "ratio"}, {"", "", 0, true}};
  int beyond = 0;
  for (const lab::ComparedTiming& one : comparison.timings) {
    beyond += one.is_beyond_spread;
    std::size_t at = 0;
    for (const std::string& cell :
         {asked_of(*one.record), one.record->algorithm, one.record->dtype, fmt::format("{}", one.record->ranks),
          fmt::format("{}", one.record->bytes), std::string(one.variant), number(one.first_us), number(one.second_us),
          fmt::format("{:.2f}", one.ratio), std::string(one.is_beyond_spread ? "*" : "")})
      columns[at++].cells.push_back(cell);
  }
  text += table_text(columns, width);
  for (const std::string& lonely : comparison.only_first) text += fmt::format("# only in {}: {}\n", first, lonely);
  for (const std::string& lonely : comparison.only_second) text += fmt::format("# only in {}: {}\n", second, lonely);
  text += fmt::format("# {} of {} differ by more than calls vary{}\n", beyond, comparison.timings.size(),
                      beyond == 0 ? "" : " (*: the middle halves of the calls have nothing in common)");
  return text;
}

}  // namespace keel::cli
