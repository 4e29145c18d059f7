// Two sessions in one folder, and what killed sessions leave there.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <set>

#include "keel/trainer/run_files.h"
#include "tests/trainer/run_support.h"

namespace {
std::atomic<bool> has_locks = true;
std::atomic<int> locks_asked = 0;
}  // namespace

// Stands before the C library's, as a file system that may have no locks.
extern "C" int flock(int descriptor, int operation) {
  ++locks_asked;
  if (has_locks) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = ENOLCK;
  return -1;
}

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// Does something after a step.
class Doing : public Recorder {
 public:
  Doing(std::int64_t step, std::function<void()> what) : step_(step), what_(std::move(what)) {}
  void on_step(const StepReport& report) override {
    Recorder::on_step(report);
    if (report.step == step_) what_();
  }

 private:
  std::int64_t step_;
  std::function<void()> what_;
};

TEST(RunFolderLock, ASecondSessionInAFolderIsRefusedAndNamesTheFirst) {
  const TemporaryFolder place;
  const std::string use = concat("'", place / "run", "' is in use by another run, process ", ::getpid(), " on host ");
  for (const char* resume : {"resume=auto", "resume=never"}) {
    Recorder second;
    std::string refused;
    Doing first(3, [&] { refused = error_of([&] { train(small_run(place, "run", {resume}), second); }); });
    const Config config = small_run(place, "run", {"resume=auto"});
    train(config, first);
    EXPECT_TRUE(refused.starts_with(use)) << refused;
    EXPECT_NE(refused.find("run=OTHER"), std::string::npos) << refused;
    EXPECT_FALSE(fs::exists(RunFolder(config.run).lock())) << "goes with the session";
    Recorder alone;
    train(small_run(place, "alone", {"resume=auto"}), alone);
    EXPECT_TRUE(weights_of(config) == weights_of(small_run(place, "alone")));
    for (const char* run : {"run", "alone"}) fs::remove_all(place / run);
  }
}

TEST(RunFolderLock, ALockThatNobodyHoldsAnyMoreKeepsNobodyOut) {
  const TemporaryFolder place;
  fs::create_directories(place / "run");
  write_text_file(place / "run/lock", "process 17 on host that-was\n");
  Recorder recorder;
  EXPECT_EQ(train(small_run(place, "run"), recorder).step, 12);
  EXPECT_FALSE(fs::exists(place / "run/lock"));
}

TEST(RunFolderLock, AFileSystemWithoutLocksIsAWarning) {
  const TemporaryFolder place;
  has_locks = false;
  Recorder recorder;
  EXPECT_EQ(train(small_run(place, "run"), recorder).step, 12);
  has_locks = true;
  EXPECT_NE(recorder.messages.find("has no locks; start no second run in this folder"), std::string::npos)
      << recorder.messages;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.insert(fs::relative(entry.path(), folder).string());
  return names;
}

TEST(RunStrays, OfKilledSessionsAreGoneAfterTheNextStart) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"resume=auto"});
  const RunFolder folder(config.run);
  Recorder first, again;
  train(config, first);
  const std::set<std::string> clean = names_in(config.run);
  for (const char* unfinished : {".tmp", ".old"}) {
    fs::create_directories(folder.checkpoint(10) + unfinished);
    write_text_file(folder.checkpoint(10) + unfinished + "/model.safetensors", "half");
  }
  for (const char* file : {"/.config.yaml.4321-0.tmp", "/.model.safetensors.4321-17.tmp", "/model.safetensors.tmp",
                           "/checkpoints/.latest.4321-5.tmp"})
    write_text_file(config.run + file, "half");
  const std::vector<std::string> own = {"/notes.tmp", "/.notes.tmp", "/checkpoints/mine.tmp"};  // not keel's
  for (const std::string& file : own) write_text_file(config.run + file, "mine");
  train(config, again);
  for (const std::string& file : own) EXPECT_TRUE(fs::remove(config.run + file)) << file;
  EXPECT_EQ(names_in(config.run), clean);
}

TEST(RunStrays, AFinishedRunThatIsResumedLeavesNone) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"resume=auto"});
  Recorder first, again;
  train(config, first);
  const std::set<std::string> clean = names_in(config.run);
  train(config, again);
  EXPECT_EQ(names_in(config.run), clean);
}

// Where folders cannot be exchanged, the old one is set aside for a moment.
TEST(RunStrays, ACheckpointThatWasSetAsideIsGoneOnFrom) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"resume=auto"});
  const RunFolder folder(config.run);
  Recorder first, again;
  train(config, first);
  fs::rename(folder.checkpoint(12), folder.checkpoint(12) + ".old");
  train(config, again);
  EXPECT_EQ(again.losses.size(), 0u) << again.messages;
}

TEST(RemovedFolder, IsMadeAgainAndTheRunEndsAsItWould) {
  for (const int n : {1, 3})
    for (const char* removed : {"/run", "/run/checkpoints", "/run/metrics.jsonl", "/run/lock"}) {
      SCOPED_TRACE(concat(n, " ranks without ", removed));
      const TemporaryFolder place;
      const Config config = small_run(place, "run");
      std::string messages;
      run_ranks(n, [&](Communicator& ranks) {
        Doing first(7, [&] { fs::remove_all(place.path() + removed); });
        Recorder other;
        Recorder& recorder = ranks.rank() == 0 ? first : other;
        train(config, recorder, ranks);
        if (ranks.rank() == 0) messages = recorder.messages;
      });
      EXPECT_NE(messages.find("was removed while this run wrote into it; it is made again"), std::string::npos)
          << messages;
      const RunFolder folder(config.run);
      EXPECT_EQ(folder.checkpoint_steps().back(), 12);
      for (const std::string& file : {folder.config(), folder.metrics(), folder.model()})
        EXPECT_TRUE(fs::exists(file)) << file;
      train_by(n, small_run(place, "whole"));
      EXPECT_TRUE(weights_of(config) == weights_of(small_run(place, "whole")));
      Recorder longer;
      EXPECT_EQ(train(small_run(place, "run", {"resume=auto", "steps=14"}), longer).step, 14);
    }
}

TEST(RemovedFolder, ThatItWasMadeAgainIsToldOnce) {
  const TemporaryFolder place;
  const RunFolder folder(place / "run");
  Recorder recorder;
  RunFiles files(folder, recorder);
  files.begin("steps: 3\n", {}, {});
  EXPECT_FALSE(files.keep(1));
  for (const bool by_metrics : {false, true}) {
    fs::remove_all(folder.path());
    if (by_metrics) files.write(2, {{"loss", 1.0}});
    EXPECT_TRUE(files.keep(2));
    EXPECT_FALSE(files.keep(3));
    files.write(3, {{"loss", 1.0}});
    EXPECT_FALSE(files.keep(4));
    EXPECT_TRUE(fs::exists(folder.metrics()) && fs::exists(folder.lock()));
  }
}

TEST(RemovedFolder, AfterACheckpointLosesThatOneAlone) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"steps=10", "eval.every=0"});
  class AfterCheckpoint : public Recorder {
   public:
    explicit AfterCheckpoint(std::string run) : run_(std::move(run)) {}
    void on_checkpoint(const CheckpointReport& report) override {
      if (report.step == 5) fs::remove_all(run_);
    }

   private:
    std::string run_;
  } recorder(config.run);
  train(config, recorder);
  EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), std::vector<std::int64_t>{10});
}

TEST(RemovedFolder, IsRefusedAsLongAsAnotherRunLiesThere) {
  const TemporaryFolder place;
  const RunFolder folder(place / "run");
  Recorder told;
  RunFiles files(folder, told);
  files.begin("steps: 1\n", {{"words.txt", "a b"}}, std::nullopt);
  files.write(1, {{"loss", 1.0}});
  fs::create_hard_link(folder.lock(), place / "lock");
  fs::remove(folder.metrics());
  EXPECT_TRUE(files.keep(2));
  EXPECT_TRUE(fs::equivalent(folder.lock(), place / "lock")) << "it was never given up";
  fs::remove_all(folder.path());
  fs::create_directory(folder.path());
  write_text_file(folder.config(), "steps: 2\n");
  for (int tries = 0; tries < 2; ++tries) {
    locks_asked = 0;
    EXPECT_EQ(error_of([&] { files.keep(2); }),
              concat("'", folder.path(), "' was removed while this run wrote into it, and holds another run now"));
    EXPECT_EQ(locks_asked, 1) << "it is told at once";
  }
  EXPECT_EQ(read_text_file(folder.config()), "steps: 2\n");
  fs::remove(folder.config());
  EXPECT_TRUE(files.keep(2)) << "the other one is gone";
  EXPECT_FALSE(files.keep(2));
  EXPECT_EQ(read_text_file(folder.config()), "steps: 1\n");
  EXPECT_EQ(read_text_file(folder.file("words.txt")), "a b");
  const std::string made = concat("'", folder.path(), "' was removed while this run wrote into it; it is made again\n");
  EXPECT_EQ(told.messages, made + made);
  Recorder other;
  EXPECT_NE(error_of([&] { RunFiles(folder, other).take(); }).find("is in use by another run"), std::string::npos);
  fs::remove_all(folder.path());
  write_text_file(folder.path(), "no folder");
  EXPECT_TRUE(error_of([&] { files.keep(3); }).starts_with(concat("cannot make the folder '", folder.path(), "': ")));
  fs::remove(folder.path());
  EXPECT_TRUE(files.keep(3));
}

// Another run may have begun where this one was, or the place may take no folder any more.
TEST(RemovedFolder, ThatCannotBeMadeAgainEndsTheRunAndWhatWasLearntIsSavedElsewhere) {
  for (const int n : {1, 3})
    for (const bool is_taken : {false, true}) {
      SCOPED_TRACE(concat(n, is_taken ? " ranks, another run" : " ranks, a file"));
      const TemporaryFolder place;
      fs::create_directory(place / "here");
      const fs::path before = fs::current_path();
      fs::current_path(place / "here");
      const Config config = small_run(place, "run");
      std::string message, told;
      EXPECT_THROW(run_ranks(n,
                             [&](Communicator& ranks) {
                               Doing first(7, [&] {
                                 fs::remove_all(config.run);
                                 if (is_taken) fs::create_directory(config.run);
                                 write_text_file(is_taken ? RunFolder(config.run).config() : config.run, "steps: 1\n");
                               });
                               Recorder other;
                               Recorder& recorder = ranks.rank() == 0 ? first : other;
                               const std::string error = error_of([&] { train(config, recorder, ranks); });
                               if (ranks.rank() == 0) {
                                 message = error;
                                 told = recorder.messages;
                               }
                               if (!error.empty()) throw Error(MessageLines{error});
                             }),
                   Error);
      fs::current_path(before);
      EXPECT_NE(message.find(is_taken ? "holds another run now" : "cannot make the folder"), std::string::npos)
          << message;
      EXPECT_NE(told.find("what was learnt up to step "), std::string::npos) << told;
      std::string saved;
      for (const auto& entry : fs::directory_iterator(place / "here")) saved = entry.path().string();
      ASSERT_NE(saved, "");
      EXPECT_EQ(read_text_file(is_taken ? RunFolder(config.run).config() : config.run), "steps: 1\n");
      train_by(n, small_run(place, "rest", {"resume=" + saved}));
      train_by(n, small_run(place, "whole"));
      EXPECT_TRUE(weights_of(small_run(place, "rest")) == weights_of(small_run(place, "whole")));
    }
}

// Where the current folder takes no checkpoint, either.
TEST(RemovedFolder, ThatCannotBeMadeAgainLeavesWhatWasLearntInTheTemporaryFolder) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    fs::create_directory(place / "temporary");
    const fs::path before = fs::current_path();
    const char* const temporary = std::getenv("TMPDIR");
    const std::string kept = temporary == nullptr ? "" : temporary;
    fs::current_path("/proc");
    ::setenv("TMPDIR", (place / "temporary").c_str(), 1);
    const Config config = small_run(place, "run", {"steps=4", "eval.every=0"});
    std::string told;
    EXPECT_THROW(run_ranks(n,
                           [&](Communicator& ranks) {
                             Doing first(2, [&] {
                               fs::remove_all(config.run);
                               write_text_file(config.run, "no folder");
                             });
                             Recorder other;
                             Recorder& recorder = ranks.rank() == 0 ? first : other;
                             const std::string error = error_of([&] { train(config, recorder, ranks); });
                             if (ranks.rank() == 0) told = recorder.messages;
                             if (!error.empty()) throw Error(MessageLines{error});
                           }),
                 Error);
    fs::current_path(before);
    if (temporary == nullptr) ::unsetenv("TMPDIR");
    else ::setenv("TMPDIR", kept.c_str(), 1);
    std::string saved;
    for (const auto& entry : fs::directory_iterator(place / "temporary")) saved = entry.path().string();
    ASSERT_NE(saved, "") << told;
    EXPECT_NE(told.find(concat("what was learnt up to step ", read_whole(saved).step, " is in '", saved,
                               "'; resume=", saved, " run=OTHER goes on from there\n")),
              std::string::npos)
        << told;
  }
}

}  // namespace
}  // namespace keel
