#include "step_record.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "keel/dist/comm/trace.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/trainer/run_folder.h"
#include "whole_number.h"

namespace keel::cli {
namespace {

constexpr std::string_view kStep = "step ", kBefore = "before the step";

// Chrome's thread: beyond the rows it is one more line of communication.
int row_of(std::int64_t thread) {
  return static_cast<int>(thread < kTraceRows ? thread : static_cast<std::int64_t>(TraceRow::communication));
}

struct Files {
  std::string trace, memory;
};

// Those that have a file of their own, trace.RANK.json: of ranks that were lost there is none.
std::set<int> ranks_with_traces(const std::string& run) {
  constexpr std::string_view kBegin = "trace.", kEnd = ".json";
  std::set<int> ranks;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() < kBegin.size() + kEnd.size()) continue;
    if (const auto rank =
            whole_number(std::string_view(name).substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size())))
      ranks.insert(*rank);
  }
  return ranks;
}

std::vector<Files> files_of(const std::string& run) {
  const RunFolder folder(run);
  KEEL_CHECK(std::filesystem::is_directory(run), "'", run, "' is not the folder of a run");
  const auto is_there = [](const std::string& file) { return std::filesystem::exists(file); };
  std::vector<Files> files;
  if (is_there(folder.trace())) files.push_back({folder.trace(), folder.memory()});
  else
    for (const int rank : ranks_with_traces(run)) files.push_back({folder.trace_of(rank), folder.memory_of(rank)});
  KEEL_CHECK(!files.empty(), "the run in '", run, "' has recorded no step; log.trace=1 records its second one, and ",
             "profile={start: 100, steps: 1} the hundredth: keel train CONFIG.yaml run=FOLDER log.trace=1");
  for (const Files& each : files)
    KEEL_CHECK(is_there(each.memory), "'", each.trace, "' is there without '", each.memory,
               "': an older keel recorded it; train again with log.trace=1");
  return files;
}

RecordedRank& rank_in(std::vector<RecordedRank>& ranks, std::int64_t number) {
  const auto found = std::ranges::find(ranks, static_cast<int>(number), &RecordedRank::rank);
  if (found != ranks.end()) return *found;
  return ranks.emplace_back(RecordedRank{.rank = static_cast<int>(number), .spans = {}, .changes = {}});
}

void read_spans(const std::string& file, std::vector<RecordedRank>& ranks) {
  const Json trace = Json::parse(read_text_file(file));
  for (const Json& event : trace.at("traceEvents").items()) {
    if (event.at("ph").string() != "X") continue;
    RecordedSpan span{.row = row_of(event.at("tid").integer()),
                      .begin = event.at("ts").integer(),
                      .end = event.at("ts").integer() + event.at("dur").integer(),
                      .name = event.at("name").string()};
    if (const Json* const arguments = event.find("args")) {
      span.bytes = arguments->at("bytes").integer();
      span.sent = arguments->at("sent").integer();
    }
    rank_in(ranks, event.at("pid").integer()).spans.push_back(std::move(span));
  }
}

void read_changes(const std::string& file, StepRecord& record) {
  const Json memory = Json::parse(read_text_file(file));
  const Json* const format = memory.find("format");
  KEEL_CHECK(format != nullptr && format->is_string() && format->string() == "keel memory" &&
                 memory.at("version").integer() == 1,
             "'", file, "' is no record of memory that this keel reads");
  KEEL_CHECK(memory.at("dropped").integer() == 0, "'", file, "' lacks ", memory.at("dropped").integer(),
             " changes of memory for which there was no room; record fewer steps");
  if (const Json* const began = memory.find("began")) record.began = static_cast<int>(began->integer());
  record.purposes.clear();
  for (const Json& purpose : memory.at("purposes").items()) record.purposes.push_back(purpose.string());
  for (const Json& own : memory.at("ranks").items()) {
    RecordedRank& rank = rank_in(record.ranks, own.at("rank").integer());
    for (const Json& each : own.at("changes").items()) {
      const auto number = [&](std::size_t i) { return each.items().at(i).integer(); };
      const RecordedChange change{
          .time = number(0), .bytes = number(1), .purpose = static_cast<int>(number(2)), .block = number(3)};
      KEEL_CHECK(change.purpose >= 0 && change.purpose < std::ssize(record.purposes), "'", file,
                 "' names purpose number ", change.purpose, " and lists ", record.purposes.size());
      rank.changes.push_back(change);
    }
  }
}

bool is_step(const RecordedSpan& span) {
  return span.row == static_cast<int>(TraceRow::compute) && span.name.starts_with(kStep);
}

// From the first rank's beginning to the last one's end.
void find_step(StepRecord& record, std::int64_t wanted) {
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> steps;
  for (const RecordedRank& rank : record.ranks)
    for (const RecordedSpan& span : rank.spans) {
      if (!is_step(span)) continue;
      const auto [at, is_new] = steps.try_emplace(std::stoll(span.name.substr(kStep.size())), span.begin, span.end);
      at->second = {std::min(at->second.first, span.begin), std::max(at->second.second, span.end)};
    }
  KEEL_CHECK(!steps.empty(), "the trace has no step");
  const auto found = wanted == 0 ? steps.begin() : steps.find(wanted);
  KEEL_CHECK(found != steps.end(), "step ", wanted, " was not recorded; steps ", steps.begin()->first, " to ",
             steps.rbegin()->first, " were");
  record.step = found->first;
  std::tie(record.begin, record.end) = found->second;
}

bool is_in(const StepRecord& record, const RecordedSpan& span) {
  return span.end > record.begin && span.begin < record.end;
}

// The shortest span of computing around a time.
std::string computed_at(const StepRecord& record, const RecordedRank& rank, std::int64_t time) {
  if (time < record.begin) return std::string(kBefore);
  const RecordedSpan* found = nullptr;
  for (const RecordedSpan& span : rank.spans)
    if (span.row == static_cast<int>(TraceRow::compute) && !is_step(span) && span.begin <= time && time <= span.end &&
        (found == nullptr || span.end - span.begin < found->end - found->begin))
      found = &span;
  return found == nullptr ? "between units" : found->name;
}

}  // namespace

StepRecord read_step(const std::string& run, std::int64_t step) {
  StepRecord record;
  for (const Files& files : files_of(run)) {
    read_spans(files.trace, record.ranks);
    read_changes(files.memory, record);
  }
  std::ranges::sort(record.ranks, {}, &RecordedRank::rank);
  find_step(record, step);
  record.began = std::max(record.began, record.ranks.back().rank + 1);  // an older keel did not write it
  for (RecordedRank& rank : record.ranks) {
    std::erase_if(rank.spans, [&](const RecordedSpan& span) { return !is_in(record, span); });
    std::erase_if(rank.changes, [&](const RecordedChange& change) { return change.time > record.end; });
  }
  return record;
}

StepPeak peak_of(const StepRecord& record, const RecordedRank& rank) {
  StepPeak peak{.time = record.begin, .bytes = 0, .alive = {}};
  std::size_t alive = 0;  // changes until the peak
  std::int64_t now = 0;
  for (std::size_t i = 0; i < rank.changes.size(); ++i) {
    now += rank.changes[i].bytes;
    const bool is_before = rank.changes[i].time < record.begin;
    if (is_before || now > peak.bytes) peak = {std::max(rank.changes[i].time, record.begin), now, {}}, alive = i + 1;
  }
  std::map<std::int64_t, std::string> since;
  std::map<std::pair<int, std::string>, AliveGroup> groups;
  for (std::size_t i = 0; i < alive; ++i) {
    const RecordedChange& change = rank.changes[i];
    if (change.block > 0 && change.bytes > 0) since[change.block] = computed_at(record, rank, change.time);
    const std::string origin = change.block > 0 ? since[change.block] : std::string(kBefore);
    AliveGroup& group = groups[{change.purpose, origin}];
    group.bytes += change.bytes;
    if (change.block > 0) group.blocks += change.bytes > 0 ? 1 : -1;
  }
  for (auto& [key, group] : groups) {
    if (group.bytes == 0) continue;
    group.purpose = record.purposes[static_cast<std::size_t>(key.first)];
    group.since = key.second;
    peak.alive.push_back(std::move(group));
  }
  std::ranges::stable_sort(peak.alive, std::ranges::greater(), &AliveGroup::bytes);
  return peak;
}

StepSent sent_in(const StepRecord& record, const RecordedRank& rank) {
  StepSent sent;
  for (const RecordedSpan& span : rank.spans) {
    if (span.row != static_cast<int>(TraceRow::communication) || span.begin < record.begin || span.begin >= record.end)
      continue;
    sent.all += span.sent;
    if (span.name.find(' ') != std::string::npos) sent.of_units += span.sent;  // "all_gather h.3"
  }
  return sent;
}

Json to_json(const StepRecord& record) {
  Json ranks = Json::array();
  for (const RecordedRank& rank : record.ranks) {
    Json spans = Json::array(), changes = Json::array();
    for (const RecordedSpan& span : rank.spans)
      if (!is_step(span))
        spans.push_back(Json::array({span.row, span.begin, span.end, span.name, span.bytes, span.sent}));
    for (const RecordedChange& change : rank.changes)
      changes.push_back(Json::array({change.time, change.bytes, change.purpose, change.block}));
    ranks.push_back({{"rank", rank.rank}, {"spans", std::move(spans)}, {"changes", std::move(changes)}});
  }
  return {{"step", record.step},
          {"begin", record.begin},
          {"end", record.end},
          {"purposes", record.purposes},
          {"ranks", std::move(ranks)}};
}

}  // namespace keel::cli
