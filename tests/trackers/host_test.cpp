#include "keel/trainer/tracker_host.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

// What a tracker does when it is called, and what it has been told; a test and the tracker's thread share it.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> calls;
  std::string throws_at = {};  // the call
  std::string hangs_at = {};
  bool is_free = false, is_gone = false;

  void called(const std::string& call) {
    std::unique_lock lock(mutex);
    calls.push_back(call);
    changed.notify_all();
    if (call == hangs_at) changed.wait(lock, [this] { return is_free; });
    if (call == throws_at) throw Error("no space left");
  }
  void set_free() {
    const std::lock_guard lock(mutex);
    is_free = true;
    changed.notify_all();
  }
  // Until the tracker has had the call; a minute is more than any machine needs.
  ::testing::AssertionResult waits_for(const std::string& call) {
    std::unique_lock lock(mutex);
    const bool has_come = changed.wait_for(lock, std::chrono::minutes(1),
                                           [&] { return std::find(calls.begin(), calls.end(), call) != calls.end(); });
    return has_come ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << "no call " << call;
  }
  bool is_gone_soon() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::minutes(1), [&] { return is_gone; });
  }
  std::vector<std::string> all_calls() {
    const std::lock_guard lock(mutex);
    return calls;
  }
};

class ScriptedTracker : public Tracker {
 public:
  explicit ScriptedTracker(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  ~ScriptedTracker() override {
    const std::lock_guard lock(script_->mutex);
    script_->is_gone = true;
    script_->changed.notify_all();
  }
  void begin(const RunDescription& run) override {
    std::string call = "begin " + run.name;
    for (const auto& [key, value] : run.tags) call += concat(' ', key, '=', value);
    if (!run.resumed_id.empty()) call += " id=" + run.resumed_id;
    script_->called(call);
  }
  std::string id() const override { return "id-7"; }
  void log(std::int64_t step, double /*seconds*/, std::span<const Logged> values) override {
    std::string call = concat("log ", step);
    for (const Logged& each : values) call += concat(' ', each.name);
    script_->called(call);
  }
  void text(std::string_view name, std::string_view text) override {
    script_->called(concat("text ", name, ' ', text));
  }
  void artifact(std::string_view name, const std::string& path) override {
    script_->called(concat("artifact ", name, ' ', path));
  }
  void flush() override { script_->called("flush"); }
  void end(RunStatus status) override { script_->called(concat("end ", name_of(status))); }

 private:
  std::shared_ptr<Script> script_;
};

using Calls = std::vector<std::string>;

struct TrackersOfARun : ::testing::Test {
  testing::TemporaryFolder folder;
  std::vector<std::string> told;

  std::shared_ptr<Script> script() { return std::make_shared<Script>(); }
  std::unique_ptr<TrackerHost> host(const std::vector<std::shared_ptr<Script>>& scripts,
                                    TrackerHostOptions options = {}, bool is_resumed = false) {
    std::vector<HostedTracker> trackers;
    for (const auto& each : scripts)
      trackers.push_back({concat("t", trackers.size()), std::make_unique<ScriptedTracker>(each)});
    RunDescription run{.name = "run", .folder = folder.path(), .config = ""};
    run.is_resumed = is_resumed;
    return std::make_unique<TrackerHost>(
        std::move(trackers), run, [this](LogLevel, std::string_view text) { told.emplace_back(text); }, options);
  }
  static void log(TrackerHost& host, std::int64_t step) { host.log(step, std::vector<Logged>{{"loss", 1.0}}); }
};

TEST_F(TrackersOfARun, GetEverythingInOrder) {
  const auto one = script();
  const auto run = host({one});
  log(*run, 1);
  run->text("note", "words");
  run->artifact("model", "/m");
  log(*run, 1);
  run->end(RunStatus::killed);
  const Calls expected = {"begin run",  "log 1 loss", "text note words", "artifact model /m",
                          "log 1 loss", "flush",      "end killed"};
  EXPECT_EQ(one->all_calls(), expected);
  EXPECT_TRUE(one->is_gone);
  EXPECT_TRUE(told.empty());
}

TEST_F(TrackersOfARun, HaveNamesAndTagsOfTheirOwn) {
  const auto own = script(), plain = script();
  std::vector<HostedTracker> trackers;
  trackers.push_back({"own", std::make_unique<ScriptedTracker>(own), "mine", {{"team", "blue"}}});
  trackers.push_back({"plain", std::make_unique<ScriptedTracker>(plain)});
  TrackerHost(std::move(trackers), {.name = "run", .folder = folder.path(), .config = "", .tags = {{"ranks", "2"}}},
              [](LogLevel, std::string_view) {})
      .end(RunStatus::finished);
  EXPECT_EQ(own->all_calls().front(), "begin mine ranks=2 team=blue");
  EXPECT_EQ(plain->all_calls().front(), "begin run ranks=2");
}

TEST_F(TrackersOfARun, GetTheRecordsAndValuesThatTheyWant) {
  const auto thin = script(), named = script(), plain = script();
  std::vector<HostedTracker> trackers;
  trackers.push_back({.label = "thin", .tracker = std::make_unique<ScriptedTracker>(thin), .every = 10});
  trackers.push_back(
      {.label = "named", .tracker = std::make_unique<ScriptedTracker>(named), .values = {"lo*", "validation_*"}});
  trackers.push_back({.label = "plain", .tracker = std::make_unique<ScriptedTracker>(plain)});
  TrackerHost run(std::move(trackers), {.name = "run", .folder = folder.path(), .config = ""},
                  [](LogLevel, std::string_view) {});
  const std::vector<Logged> of_step = {{"loss", 1.0}, {"lr", 0.5}}, of_evaluation = {{"validation_loss", 2.0}};
  for (std::int64_t step = 4; step <= 24; step += 4) run.log(step, of_step, step - 4);
  run.log(24, of_evaluation);
  run.log(25, of_step);  // the last one
  run.log(25, std::vector<Logged>{{"peak_total_bytes", 3.0}});
  run.end(RunStatus::finished);
  EXPECT_EQ(thin->all_calls(), (Calls{"begin run", "log 12 loss lr", "log 20 loss lr", "log 24 validation_loss",
                                      "log 25 loss lr", "log 25 peak_total_bytes", "flush", "end finished"}));
  EXPECT_EQ(named->all_calls(),
            (Calls{"begin run", "log 4 loss", "log 8 loss", "log 12 loss", "log 16 loss", "log 20 loss", "log 24 loss",
                   "log 24 validation_loss", "log 25 loss", "flush", "end finished"}));
  EXPECT_EQ(plain->all_calls().size(), 12u);
}

TEST_F(TrackersOfARun, ThatHangHoldUpNeitherTrainingNorOthers) {
  const auto hangs = script(), works = script();
  hangs->hangs_at = "begin run";
  const auto run = host({hangs, works}, {.capacity = 10, .end_seconds = 0.05});
  ASSERT_TRUE(hangs->waits_for("begin run"));
  for (int step = 1; step <= 1000; ++step) {  // all of them return
    log(*run, step);
    ASSERT_TRUE(works->waits_for(concat("log ", step, " loss")));
  }
  run->artifact("model", "/m");  // finds room
  run->end(RunStatus::finished);
  EXPECT_EQ(works->all_calls().back(), "end finished");
  const Calls expected = {"tracker t0: it is slower than the run, and some records are left out",
                          "tracker t0: 990 records were left out",
                          "tracker t0: it has not ended in time and is left behind; what has not arrived: 11"};
  EXPECT_EQ(told, expected);
  hangs->set_free();
  EXPECT_TRUE(hangs->is_gone_soon());                         // what it was told has come, though late
  EXPECT_EQ(hangs->all_calls().size(), 1U + 10 + 1 + 1 + 1);  // begin, records, artifact, flush, end
}

TEST_F(TrackersOfARun, ThatMissOneRecordAloneAreToldOfIt) {
  const auto slow = script();
  slow->hangs_at = "log 1 loss";
  const auto run = host({slow}, {.capacity = 1});
  log(*run, 1);
  ASSERT_TRUE(slow->waits_for("log 1 loss"));
  for (int step = 2; step <= 3; ++step) log(*run, step);
  slow->set_free();
  run->end(RunStatus::finished);
  EXPECT_EQ(told, (Calls{"tracker t0: it is slower than the run, and some records are left out",
                         "tracker t0: 1 records were left out"}));
}

TEST_F(TrackersOfARun, ThatAreSlowMissRecordsAndNothingElse) {
  const auto slow = script();
  slow->hangs_at = "log 1 loss";
  const auto run = host({slow}, {.capacity = 3});
  log(*run, 1);
  ASSERT_TRUE(slow->waits_for("log 1 loss"));
  for (int step = 2; step <= 9; ++step) log(*run, step);
  slow->set_free();
  ASSERT_TRUE(slow->waits_for("log 4 loss"));
  log(*run, 10);
  run->end(RunStatus::finished);
  const Calls expected = {"begin run",  "log 1 loss",  "log 2 loss", "log 3 loss",
                          "log 4 loss", "log 10 loss", "flush",      "end finished"};
  EXPECT_EQ(slow->all_calls(), expected);
  const Calls complaints = {"tracker t0: it is slower than the run, and some records are left out",
                            "tracker t0: 5 records were left out"};
  EXPECT_EQ(told, complaints);
  run->end(RunStatus::killed);
  EXPECT_EQ(told, complaints) << "ends once";
  EXPECT_EQ(slow->all_calls(), expected);
}

TEST_F(TrackersOfARun, ThatThrowAreToldOnceAndOnlyEndAfterwards) {
  for (const std::string call : {"begin run", "log 2 loss", "flush"}) {
    told.clear();
    const auto bad = script(), good = script();
    bad->throws_at = call;
    const auto run = host({bad, good}, {.flush_seconds = 0.001});
    log(*run, 1);
    log(*run, 2);
    ASSERT_TRUE(bad->waits_for(call));
    ASSERT_TRUE(good->waits_for("log 2 loss"));
    for (int tries = 0; told.empty() && tries < 60000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      run->text("is it told?", "");
    }
    const std::size_t before = bad->all_calls().size();
    for (int step = 3; step < 3000; ++step) log(*run, step);
    run->end(RunStatus::failed);
    const Calls calls = bad->all_calls();
    EXPECT_EQ(calls.size(), before + 1) << call;
    EXPECT_EQ(calls.back(), "end failed");
    std::erase_if(told, [](const std::string& text) { return !text.starts_with("tracker t0: "); });
    EXPECT_EQ(told, Calls{"tracker t0: no space left; training goes on without it"});
    EXPECT_EQ(good->all_calls().back(), "end failed");
  }
}

TEST_F(TrackersOfARun, MayThrowAtTheEnd) {
  const auto bad = script();
  bad->throws_at = "end finished";
  host({bad})->end(RunStatus::finished);
  EXPECT_EQ(told, Calls{"tracker t0: no space left"});
  EXPECT_TRUE(bad->is_gone);
}

TEST_F(TrackersOfARun, ThatGetNoThreadAreToldAndHoldUpNobody) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_getattr_default_np(&huge), 0);
  ::pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  const auto one = script();
  const auto run = host({one}, {.end_seconds = 0.05});
  ::pthread_setattr_default_np(&usual);
  ::pthread_attr_destroy(&usual);
  ::pthread_attr_destroy(&huge);
  log(*run, 1);
  run->end(RunStatus::finished);
  EXPECT_EQ(told, Calls{"tracker t0: there is no thread for it: Resource temporarily unavailable; training goes on "
                        "without it"});
  EXPECT_EQ(one->all_calls(), Calls{});
}

TEST_F(TrackersOfARun, AreFlushedWhileNothingComes) {
  const auto one = script();
  const auto run = host({one}, {.flush_seconds = 0.001});
  log(*run, 1);
  EXPECT_TRUE(one->waits_for("flush"));
  run->end(RunStatus::finished);
  const Calls expected = {"begin run", "log 1 loss", "flush", "end finished"};  // and once only
  EXPECT_EQ(one->all_calls(), expected);
}

TEST_F(TrackersOfARun, AreEndedAsFailedWhereNobodyEndsThem) {
  const auto one = script();
  host({one}).reset();
  EXPECT_EQ(one->all_calls().back(), "end failed");
}

TEST_F(TrackersOfARun, GetTheirIdBackInTheNextSession) {
  host({script()})->end(RunStatus::failed);
  EXPECT_EQ(read_text_file(folder / "trackers/t0.id"), "id-7\n");
  const auto next = script(), other = script();
  host({next}, {}, true)->end(RunStatus::finished);
  EXPECT_EQ(next->all_calls().front(), "begin run id=id-7");
  host({other})->end(RunStatus::finished);  // another run in the same place
  EXPECT_EQ(other->all_calls().front(), "begin run");
}

TEST_F(TrackersOfARun, TellFromTheThreadThatCallsAlone) {
  const auto bad = script();
  bad->throws_at = "begin run";
  const std::thread::id here = std::this_thread::get_id();
  std::vector<HostedTracker> trackers;
  trackers.push_back({"t", std::make_unique<ScriptedTracker>(bad)});
  int count = 0;
  TrackerHost run(std::move(trackers), {.name = "run", .folder = folder.path(), .config = ""},
                  [&](LogLevel level, std::string_view) {
                    EXPECT_EQ(std::this_thread::get_id(), here);
                    EXPECT_EQ(level, LogLevel::warning);
                    ++count;
                  });
  run.end(RunStatus::finished);
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace keel
