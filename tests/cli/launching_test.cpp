// A launcher at work, of which a shell takes the part.

#include "cli/launching.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "cli/process.h"
#include "keel/runtime/file.h"
#include "tests/cli/program.h"
#include "tests/process_state.h"

namespace keel::cli {
namespace {

// Of ranks elsewhere, for whose start nobody waits.
LaunchPlan plan_of(const std::string& script) {
  LaunchPlan plan;
  plan.command = {"sh", "-c", script};
  plan.launcher = Launcher::Kind::slurm;
  plan.reports = true;
  return plan;
}

TEST(Launching, TakesReportsOutOfTheStandardErrorAndShowsTheRest) {
  const RankReport report = {RankReport::What::killed, 3, 9, "was killed"};
  const LaunchPlan plan = plan_of("echo before >&2; printf '" + to_line(report) + "' >&2; echo behind >&2; exit 4");
  SessionEnd end;
  EXPECT_EQ(testing::said_by([&] { end = Launching(plan).run(); }), "before\nbehind\n");
  EXPECT_EQ(end.code, 4);
  EXPECT_EQ(end.reports, std::vector{report});
}

TEST(Launching, AsksRanksToEndOnceAndSparesThemTheUsersSignalMeanwhile) {
  const HeldSignals held;
  const LaunchPlan plan =
      plan_of("trap 'exit 9' USR1 TERM; trap 'echo asked >&2; sleep 1; exit 143' USR2; while :; do sleep 0.05; done");
  const auto begin = std::chrono::steady_clock::now();
  SessionEnd end;
  std::jthread user([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    ::kill(::getpid(), SIGINT);
  });
  const auto asks = [&](const std::vector<RankReport>&) {
    return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300);
  };
  EXPECT_EQ(testing::said_by([&] { end = Launching(plan).run(asks); }), "asked\n");
  EXPECT_EQ(end.code, 128 + SIGTERM);
  EXPECT_TRUE(end.was_to_grow);
  EXPECT_EQ(end.user_signal, SIGINT) << "it still ends the run";
}

TEST(ProcessAroundARank, NamesADeathThatTheLauncherDidNotWant) {
  struct Case {
    int first;  // that the launcher sends; 0: nothing
    bool is_named;
  };
  for (const Case& each : {Case{0, true}, Case{SIGUSR2, true}, Case{SIGTERM, false}}) {
    SCOPED_TRACE(each.first);
    const testing::TemporaryFolder folder;
    testing::RunningProgram around(
        "launch --rank sh -c 'trap \": >got\" TERM; echo $$ >.id; mv .id id; while :; do sleep 0.05; done'",
        folder.path(), concat("export ", kReportsVariable, "=1 KEEL_RANK=1 KEEL_SIZE=2 ", "KEEL_ADDRESS=127.0.0.1:1"));
    const auto wait_for = [&](const char* file) {
      while (!std::filesystem::exists(folder / file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    wait_for("id");
    if (each.first != 0) around.send(each.first);
    if (each.first != 0) wait_for("got");
    ::kill(std::stoi(read_text_file(folder / "id")), SIGKILL);
    const testing::Outcome outcome = around.wait();
    EXPECT_EQ(outcome.code, 128 + SIGKILL);
    ReportReader reader;
    const std::string shown = reader.pass(outcome.err);
    EXPECT_EQ(shown.find("keel: error: rank 1 was killed by signal 9") != std::string::npos, each.is_named) << shown;
    const std::vector<RankReport>& reports = reader.reports();
    ASSERT_EQ(reports.size(), each.is_named ? 2u : 1u);
    EXPECT_EQ(reports[0], (RankReport{RankReport::What::started, 1}));
    if (!each.is_named) continue;
    EXPECT_EQ(reports[1].what, RankReport::What::killed);
    EXPECT_EQ(reports[1].number, SIGKILL);
  }
}

}  // namespace
}  // namespace keel::cli
