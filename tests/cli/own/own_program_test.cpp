// A program with a task and callbacks of its own that are at fault: one line that says where, exit code 2, and nothing
// that is half written, by a rank alone, by threads, by processes that TCP connects, and by those of MPI.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/run_folder.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

struct Place : Sandbox {
  Place() {
    std::string points = "x,y\n";
    for (int i = 0; i < 40; ++i) points += concat(0.05 * i, ',', 0.1 * i - 1, '\n');
    write("points.csv", points);
    write("line.yaml",
          "steps: 6\ndata: {path: points.csv}\nbatch: {global: 6, micro: 2}\noptimizer: {lr: 1e-2}\n"
          "eval: {every: 2}\ncheckpoint: {every: 2}\nthreads: 1\nrun: made\n");
  }
};

// How a run of so many ranks is started.
struct Ranks {
  std::string words;
  int number;
};
const std::vector<Ranks> kInOneProcess = {{"train ", 1}, {"launch -N 2 --threads ", 2}, {"launch -N 3 --threads ", 3}};
const std::vector<Ranks> kByProcesses = {{"launch -N 2 --tcp ", 2},
                                         {"launch -N 3 --tcp ", 3},
#ifdef KEEL_HAVE_MPI
                                         {"launch -N 2 ", 2},
                                         {"launch -N 3 ", 3}
#endif
};
std::vector<Ranks> all_ways() {
  std::vector<Ranks> all = kInOneProcess;
  all.insert(all.end(), kByProcesses.begin(), kByProcesses.end());
  return all;
}

// One line, which has each of the words.
void expect_one_line(const Outcome& outcome, const std::vector<std::string>& words, const std::string& where) {
  std::string errors;
  for (std::size_t at = 0; at < outcome.err.size(); at = outcome.err.find('\n', at) + 1)
    if (outcome.err.compare(at, 12, "keel: error:") == 0)
      errors += outcome.err.substr(at, outcome.err.find('\n', at) + 1 - at);
  EXPECT_EQ(std::ranges::count(errors, '\n'), 1) << where << '\n' << outcome.err;
  for (const std::string& word : words) EXPECT_NE(errors.find(word), std::string::npos) << where << '\n' << outcome.err;
  EXPECT_EQ(outcome.code, 2) << where << '\n' << outcome.err;
}

// Every file there is whole: no name of one that is being written, and every checkpoint has its bytes.
void expect_nothing_half_written(const Place& place, const std::string& where) {
  for (const auto& [name, bytes] : place.contents()) EXPECT_EQ(name.find(".tmp"), std::string::npos) << where << name;
  const RunFolder run(place / "made");
  for (const std::int64_t step : run.checkpoint_steps()) {
    const Checkpoint checkpoint = open_checkpoint(run.checkpoint(step));
    EXPECT_EQ(checkpoint.state.step, step) << where;
    ExtentReader(checkpoint.path, checkpoint.manifest).verify();
  }
}

TEST(OwnProgram, RefusesTasksThatAreAtFaultInOneLine) {
  struct Case {
    std::string fault;
    std::vector<std::string> words;
    bool begins;  // shows in a step, when the folder of the run is there
  };
  const Case cases[] = {
      {"no_data", {"the task line has no data to train on"}, false},
      {"field", {"the batch has no 'xs'; did you mean 'x'? It has x f32 (2, 1), y f32 (2, 1)"}, true},
      {"shape", {"the loss must be one floating number, not f32 (2, 1)"}, true},
      {"whole", {"the loss", "i64"}, true},
      {"gradient", {"the loss does not depend on any trained parameter"}, true},
      {"weight", {"the batch has no weight 'tokens'", "rows"}, true},
      {"metric", {"guesses and targets are whole numbers of one shape, not i64 (1) and i64 ("}, true}};
  for (const Case& each : cases)
    for (const Ranks& way : each.fault == "field" ? all_ways() : kInOneProcess) {
      const Place place;
      const auto before = place.contents();
      const std::string where = concat(way.words, each.fault, ": ");
      expect_one_line(place.keel(concat(way.words, "line.yaml task.fault=", each.fault)), each.words, where);
      expect_nothing_half_written(place, where);
      if (each.begins) continue;
      EXPECT_EQ(place.contents(), before) << where;
    }
}

TEST(OwnProgram, BeginsAnewWhereASessionFailedBeforeItsFirstRecord) {
  const Place place;
  EXPECT_EQ(place.keel("train line.yaml task.fault=field").code, 2);
  const Outcome mended = place.keel("train line.yaml");
  EXPECT_EQ(mended.code, 0) << mended.err;
  expect_one_line(place.keel("train line.yaml"), {"'made' holds a run already"}, "again");
}

TEST(OwnProgram, RefusesTasksThatItCannotTellApartOrDoesNotHave) {
  const Place place;
  const auto before = place.contents();
  expect_one_line(place.keel("train line.yaml task.type=lime"), {"task.type", "'lime'", "'line'"}, "unknown");
  expect_one_line(place.keel("train line.yaml", "export TWO_LINES=1"),
                  {"the program's tasks: task 'line': there is one of this name already"}, "two");
  EXPECT_EQ(place.contents(), before);
}

TEST(OwnProgram, NamesFileLineAndColumnOfATableThatDoesNotHold) {
  struct Case {
    std::string table;
    std::vector<std::string> words;
  };
  const Case cases[] = {{"x,z\n1,2\n", {"points.csv", "line 1", "'y'", "x, z"}},
                        {"x,y\n1,2\n3\n", {"points.csv", "line 3", "1 column", "2"}},
                        {"x,y\n1,2\n3,4,5\n", {"points.csv", "line 3, column 3", "the 2 columns"}},
                        {"x,y\n1,2\n3,four\n", {"points.csv", "line 3", "'y'", "four"}},
                        {"", {"points.csv"}}};
  for (const Case& each : cases)
    for (const Ranks& way : kInOneProcess) {
      const Place place;
      place.write("points.csv", each.table);
      const std::string where = concat(way.words, each.table);
      expect_one_line(place.keel(concat(way.words, "line.yaml batch.global=3 data.path=points.csv")), each.words,
                      where);
      expect_nothing_half_written(place, where);
    }
}

TEST(OwnProgram, LeavesNoPredictionsThatCannotBeWritten) {
  const Place place;
  ASSERT_EQ(place.keel("train line.yaml").code, 0);
  const auto before = place.contents();
  for (const Ranks& way : kInOneProcess) {
    const std::string words = way.number == 1 ? "" : way.words;
    const auto predict = [&](const std::string& out) {
      return place.keel(concat(words, "predict made --input points.csv --out ", out));
    };
    expect_one_line(predict("none/at.jsonl"), {"none/at.jsonl"}, words);
    expect_one_line(predict("made"), {"made"}, words);
    expect_one_line(predict("/dev/full"), {"/dev/full"}, words);
    EXPECT_EQ(place.contents(), before) << words;
  }
}

// Of several ranks the last one alone.
TEST(OwnProgram, EndsInOrderWhereACallbackThrowsOnOneRank) {
  for (const std::string event :
       {"fit_begin", "step_begin", "after_backward", "step_end", "evaluation_begin", "checkpoint_saved"})
    for (const Ranks& way : event == "fit_begin" || event == "step_end" ? all_ways() : kInOneProcess) {
      const Place place;
      const std::string where = concat(way.words, event, ": ");
      const std::string rank = way.number == 1 ? "" : concat("rank ", way.number - 1, ": ");
      const Outcome outcome =
          place.keel(concat(way.words, "line.yaml task.event=", event, " task.rank=", way.number - 1));
      expect_one_line(outcome, {concat(rank, "callback faulty failed in ", event, ": out of milk")}, where);
      expect_nothing_half_written(place, where);
      const std::vector<std::int64_t> saved = RunFolder(place / "made").checkpoint_steps();
      EXPECT_EQ(saved.empty(), event == "fit_begin") << where;
      // What was learnt is gone on with, to the end.
      const Outcome again = place.keel("train line.yaml resume=auto");
      EXPECT_EQ(again.code, 0) << where << again.err;
      EXPECT_EQ(RunFolder(place / "made").checkpoint_steps().back(), 6) << where;
    }
}

// What the rank has told of its events.
std::string events_of(const Place& place, int rank) {
  std::string events;
  const std::string log = place.read(concat("made/logs/rank-", rank, ".log"));
  for (std::size_t at = log.find("event "); at != std::string::npos; at = log.find("event ", at + 1))
    events += log.substr(at, log.find('\n', at) + 1 - at);
  return events;
}

TEST(OwnProgram, HearsTheSameEventsOnEveryRankHoweverRanksAreStarted) {
  std::map<int, std::string> by_number;  // threads, then processes
  for (const Ranks& way : all_ways()) {
    const Place place;
    const Outcome outcome = place.keel(concat(way.words, "line.yaml task.event=tell"));
    ASSERT_EQ(outcome.code, 0) << way.words << outcome.err;
    const std::string events = events_of(place, 0);
    EXPECT_TRUE(events.starts_with("event fit_begin 0\nevent epoch_begin 1\nevent step_begin 1\n")) << events;
    EXPECT_TRUE(
        events.ends_with("event evaluation_begin 6\nevent evaluation_end 6\nevent checkpoint_saved 6\n"
                         "event fit_end 6\n"))
        << way.words << events;
    for (int rank = 1; rank < way.number; ++rank) EXPECT_EQ(events_of(place, rank), events) << way.words << rank;
    EXPECT_EQ(by_number.emplace(way.number, events).first->second, events) << way.words;
  }
}

TEST(OwnProgram, DoesWhatOneRankAsksForOnAllOfThem) {
  for (const Ranks& way : all_ways()) {
    const Place place;
    const std::string rank = concat(" task.rank=", way.number - 1);
    const Outcome stopped = place.keel(concat(way.words, "line.yaml task.event=stop", rank));
    EXPECT_EQ(stopped.code, 0) << way.words << stopped.err;
    // Several ranks hear of it with the next step.
    EXPECT_EQ(RunFolder(place / "made").checkpoint_steps().back(), 4) << way.words << stopped.err;
    const Outcome rate = place.keel(concat(way.words, "line.yaml run=other task.event=rate", rank));
    const std::string told = concat("callbacks of rank ", way.number - 1, " ask for 0.5 times the learning rate");
    if (way.number > 1) expect_one_line(rate, {told}, way.words);
  }
}

TEST(OwnProgram, RefusesADeepSpeedKeyThatChangesResultsAndIsNotKnown) {
  const Place place;
  place.write("ds.json", "{\n  \"sparse_attention\": {\"mode\": \"fixed\"}\n}\n");
  const auto before = place.contents();
  for (const Ranks& way : kInOneProcess) {
    expect_one_line(place.keel(concat(way.words, "line.yaml --deepspeed_config_file ds.json")),
                    {"ds.json", "sparse_attention"}, way.words);
    EXPECT_EQ(place.contents(), before) << way.words;
  }
}

}  // namespace
}  // namespace keel::cli
