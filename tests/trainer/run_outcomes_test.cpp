// What ranks make of what they tell each other of a step, and of reports that fail.

#include "keel/trainer/run_outcomes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

struct Turns : RunSteps {
  using RunSteps::turn_of;
  using RunSteps::turn_without_step;
};

TEST(RunOutcomes, ATurnHasTheFlagsOfAnyRankAndNamesTheFirstThatFailed) {
  std::vector<StepNote> notes(4);
  notes[0].flags.seconds = 3;
  notes[1].flags.seconds = 4;
  const RunSteps::Turn quiet = Turns::turn_of(notes);
  EXPECT_FALSE(quiet.flags.failed || quiet.flags.stop || quiet.flags.late || quiet.flags.save);
  EXPECT_EQ(quiet.failed_rank, -1);
  EXPECT_EQ(quiet.saves.size(), 4U);
  EXPECT_EQ(quiet.flags.seconds, 3) << "by the first rank's clock";
  for (std::size_t first = 0; first < notes.size(); ++first) {
    std::vector<StepNote> failing = notes;
    for (std::size_t rank = first; rank < notes.size(); ++rank) failing[rank].flags.failed = true;
    const RunSteps::Turn turn = Turns::turn_of(failing);
    EXPECT_TRUE(turn.flags.failed);
    EXPECT_EQ(turn.failed_rank, static_cast<int>(first));
  }
  notes[1].flags.stop = notes[2].flags.late = notes[3].flags.save = true;
  const RunSteps::Turn turn = Turns::turn_of(notes);
  EXPECT_TRUE(turn.flags.stop && turn.flags.late && turn.flags.save && !turn.flags.failed);
}

TEST(RunOutcomes, ATurnWithoutAStepHasTheFlagsOfARankAlone) {
  for (const bool failed : {false, true}) {
    StepFlags flags;
    flags.save = true;
    flags.failed = failed;
    flags.seconds = 7;
    const RunSteps::Turn alone = Turns::turn_without_step(flags, 1);
    EXPECT_TRUE(alone.flags.save);
    EXPECT_EQ(alone.flags.failed, failed);
    EXPECT_EQ(alone.flags.seconds, 7);
    EXPECT_EQ(alone.failed_rank, failed ? 0 : -1);
    for (const int ranks : {2, 3}) {
      const RunSteps::Turn several = Turns::turn_without_step(flags, ranks);
      EXPECT_FALSE(several.flags.save || several.flags.failed);
      EXPECT_EQ(several.failed_rank, -1);
    }
  }
}

class FullDisk : public Recorder {
 public:
  void on_step(const StepReport& report) override {
    if (report.step == 3) throw Error("the disk is full", ErrorKind::io);
  }
};

class EventsOfSteps : public Callback {
 public:
  std::string_view name() const override { return "events_of_steps"; }
  void step_begin(LoopView& view) override { seen += concat("begin ", view.state().step, '\n'); }
  void step_end(LoopView& view) override { seen += concat("end ", view.state().step, '\n'); }
  void exception(LoopView& view, const std::exception& error) override {
    seen += concat(error.what(), " in ", view.state().step, '\n');
  }
  std::string seen;
};

TEST(RunOutcomes, AReportThatFailsOnARankAloneEndsTheStepThere) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"steps=5", "eval.every=0", "checkpoint.every=0"});
  const auto events = std::make_shared<EventsOfSteps>();
  FullDisk observer;
  EXPECT_EQ(error_of([&] { train(config, observer, {events}); }), "the disk is full");
  EXPECT_EQ(events->seen, "begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nthe disk is full in 3\n");
  EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(3)).step, 3) << "after saving";
}

}  // namespace
}  // namespace keel
