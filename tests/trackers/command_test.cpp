#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <thread>

#include "keel/runtime/file.h"
#include "keel/trainer/trackers/fed_program.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trackers/session.h"

namespace keel {
namespace {

using testing::description_in;
using testing::Given;
using testing::TrackedSession;
using Told = std::vector<std::string>;

struct CommandTracker : ::testing::Test {
  testing::TemporaryFolder folder;
  std::string log = folder / "logs/tracker-command.log";

  static Given shell(const std::string& script) {
    return {{"command", "[sh, -c, \"" + script + "\"]"}, {"patience", "0.2"}};
  }
  // `steps` records to a program that a shell runs; what was told.
  Told told_by(const Given& given, int steps) {
    TrackedSession session("command", given, description_in(folder.path()), {.capacity = 100000});
    for (int step = 1; step <= steps; ++step) session.log(step, {{"loss", 0.5}});
    return session.end();
  }
  // Whether this process has a child left, running or not waited for.
  static bool has_child() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }
};

TEST_F(CommandTracker, FeedsTheExampleAsItIsDescribed) {
  const std::string echo = std::string(KEEL_SOURCE_DIR) + "/examples/trackers/echo_tracker.py";
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  TrackedSession session("command", {{"command", "[python3, " + echo + "]"}}, description_in(folder.path()));
  session.log(1, {{"loss", 0.5}, {"tokens", std::int64_t{12}}});
  session->artifact("model", "/m");
  session->text("note", "words");
  EXPECT_EQ(session.end(RunStatus::killed), Told{});
  EXPECT_EQ(read_text_file(log),
            "start try after step 0, 4 settings\nstep 1 loss=0.5 tokens=12\nartifact model /m\ntext note words\n"
            "end killed\n");
  EXPECT_FALSE(has_child());
}

TEST_F(CommandTracker, GivesTheProgramEveryLine) {
  EXPECT_EQ(told_by(shell("wc -l"), 20000), Told{});
  EXPECT_EQ(std::stoi(read_text_file(log)), 20002);
}

TEST_F(CommandTracker, ThatCannotBeStartedIsToldOnce) {
  const Told told = told_by({{"command", "[keel-has-no-such-program]"}}, 10);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("cannot start 'keel-has-no-such-program'"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find("No such file or directory"), std::string::npos) << told[0];
  EXPECT_FALSE(has_child());
}

TEST_F(CommandTracker, ThatDiesIsToldOnceWithItsExitCode) {
  for (const auto& [script, how] : {std::pair("read line; echo bad >&2; exit 3", "has ended with exit code 3"),
                                    std::pair("read line; kill -9 $$", "was ended by signal 9")}) {
    const Told told = told_by(shell(script), 20000);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_NE(told[0].find(how), std::string::npos) << told[0];
    EXPECT_FALSE(has_child());
  }
  EXPECT_EQ(read_text_file(log), "bad\n");
}

TEST_F(CommandTracker, ThatFailsInTheEndIsTold) {
  const Told told = told_by(shell("cat >/dev/null; exit 5"), 3);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("has ended with exit code 5"), std::string::npos) << told[0];
}

TEST_F(CommandTracker, ThatDoesNotReadIsKilled) {
  for (const std::string script : {"sleep 1000", "exec <&-; sleep 1000"}) {
    const Told told = told_by(shell(script), 20000);
    ASSERT_EQ(told.size(), 1U);
    const bool is_named = told[0].find("has not read its standard input for 0.2 seconds") != std::string::npos ||
                          told[0].find("has closed its standard input") != std::string::npos;
    EXPECT_TRUE(is_named) << told[0];
    EXPECT_FALSE(has_child());
  }
}

TEST_F(CommandTracker, StartsAProgramWithoutIgnoredSignalsAndWithoutOurTerminal) {
  // Blocked and ignored signals as Linux shows them; the process group is the program's own.
  EXPECT_EQ(told_by(shell("cat >/dev/null; grep -E 'SigBlk|SigIgn' /proc/self/status; ps -o pgid= -p $$; echo $$"), 1),
            Told{});
  std::istringstream said(read_text_file(log));
  std::string word, blocked, ignored, group, id;
  said >> word >> blocked >> word >> ignored >> group >> id;
  EXPECT_EQ(std::stoull(blocked, nullptr, 16), 0U);
  EXPECT_EQ(std::stoull(ignored, nullptr, 16) & 0x7fffffff, 0U);  // the others are the C library's own
  EXPECT_EQ(group, id);
}

TEST_F(CommandTracker, ThatHasFailedIsNotAskedToEnd) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);  // as threads of trackers hold it back
  const std::unique_ptr<Tracker> tracker = testing::make_tracker("command", shell("read line; exit 3"));
  tracker->begin(description_in(folder.path()));
  std::string failure;
  for (int step = 1; failure.empty() && step < 100000; ++step)
    failure = testing::error_of([&] { tracker->log(step, 0, std::vector<Logged>{{"loss", 0.5}}); });
  EXPECT_NE(failure.find("has ended with exit code 3"), std::string::npos) << failure;
  EXPECT_EQ(testing::error_of([&] { tracker->end(RunStatus::finished); }), "");
  ::signal(SIGPIPE, before);
  EXPECT_FALSE(has_child());
}

struct FedPrograms : CommandTracker {
  std::string said = folder / "said";
  FedProgram shell_of(const std::string& script) const { return {{"sh", "-c", script}, said}; }
  std::string refusal(const std::function<void()>& f) const { return testing::error_of(f); }
};

TEST_F(FedPrograms, GetEveryByteAndAddToTheirLog) {
  for (int i = 0; i < 2; ++i) {
    FedProgram cat({"cat"}, said);
    for (const char c : {'a', 'b', '\n'}) cat.write(std::string_view(&c, 1), 5);
    cat.write("", 5);
    cat.finish(5);
  }
  EXPECT_EQ(read_text_file(said), "ab\nab\n");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat about = {};
  ASSERT_EQ(::stat(said.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0666 & ~mask);
}

TEST_F(FedPrograms, ThatDoNotReadOrEndInTimeAreNamedSoon) {
  const std::string told = concat("; what it has said is in '", said, "'");
  EXPECT_EQ(refusal([&] { shell_of("exec sleep 1000").write(std::string(1 << 20, 'x'), 0.01); }),
            "'sh' has not read its standard input for 0.01 seconds" + told);
  EXPECT_EQ(refusal([&] { shell_of("exec sleep 1000").finish(0.01); }),
            "'sh' was still running 0.01 seconds after its input had ended, and was killed" + told);
  const std::pair<const char*, const char*> ends[] = {{"exit 1", "has ended with exit code 1"},
                                                      {"exit 7", "has ended with exit code 7"},
                                                      {"kill -15 $$", "was ended by signal 15"}};
  for (const auto& each : ends)
    EXPECT_EQ(refusal([&] { shell_of(each.first).finish(5); }), concat("'sh' ", each.second, told));
  EXPECT_EQ(refusal([&] {
              FedProgram({"keel-has-no-such-program", "x"}, said);
            }),
            concat("cannot start 'keel-has-no-such-program' (outputs to '", said, "'): No such file or directory"));
  EXPECT_FALSE(has_child());
}

// Open files of this process.
std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST_F(FedPrograms, LeaveNothingOpen) {
  const auto before = open_files();
  EXPECT_NE(refusal([&] { FedProgram({"keel-has-no-such-program"}, said); }), "");
  EXPECT_EQ(open_files(), before);
  { const FedProgram never_ended = shell_of("exec sleep 1000"); }
  EXPECT_EQ(open_files(), before);
  for (int i = 0; i < 2; ++i) {
    FedProgram ended = shell_of("exit 0");
    siginfo_t about = {};
    ASSERT_EQ(::waitid(P_ALL, 0, &about, WEXITED | WNOWAIT), 0);
    ended.finish(0);  // without patience, for it has ended
    EXPECT_EQ(open_files(), before);
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(has_child());
}

TEST_F(FedPrograms, MayTidyUpWhenTheyAreKilled) {
  const std::string ready = folder / "ready";
  FedProgram program =
      shell_of(concat("trap 'echo tidy; exit 0' TERM; touch ", ready, "; while :; do sleep 0.01; done"));
  while (!std::filesystem::exists(ready)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_NE(refusal([&] { program.finish(0.001); }), "");
  EXPECT_TRUE(read_text_file(said).ends_with("tidy\n")) << read_text_file(said);
}

}  // namespace
}  // namespace keel
