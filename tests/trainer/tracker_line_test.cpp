// What the thread of a tracker delivers, and what it tells where that is not all.

#include "keel/trainer/tracker_line.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

// What the tracker was called for. It is held up in the call `held`, and throws in `thrown`.
struct QueuedCalls {
  std::mutex mutex;
  std::condition_variable changed;
  std::string all, held = {}, thrown = {};
  bool is_held = false, is_free = false, is_gone = false;

  void call(const std::string& name) {
    std::unique_lock lock(mutex);
    all += name + ' ';
    if (name == held) {
      is_held = true;
      changed.notify_all();
      changed.wait(lock, [&] { return is_free || name != held; });
    }
    if (name == thrown) throw Error("no space left");
  }
  void wait_until_held() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [this] { return is_held; }));
  }
  void let_on_until(const std::string& name) {
    const std::lock_guard lock(mutex);
    held = name;
    is_held = false;
    changed.notify_all();
  }
  void let_on() {
    const std::lock_guard lock(mutex);
    is_free = true;
    changed.notify_all();
  }
  void let_on_to_the_end() {
    let_on();
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [this] { return is_gone; }));
  }
};

class QueuedTracker : public Tracker {
 public:
  QueuedTracker(std::shared_ptr<QueuedCalls> calls, std::string id) : calls_(std::move(calls)), id_(std::move(id)) {}
  ~QueuedTracker() override {
    const std::lock_guard lock(calls_->mutex);
    calls_->is_gone = true;
    calls_->changed.notify_all();
  }
  void begin(const RunDescription& run) override {
    calls_->call(concat("begin", run.is_resumed ? concat('(', run.resumed_id, ')') : ""));
  }
  std::string id() const override { return id_; }
  void log(std::int64_t, double, std::span<const Logged>) override {}
  void text(std::string_view name, std::string_view) override { calls_->call(std::string(name)); }
  void flush() override { calls_->call("flush"); }
  void end(RunStatus status) override { calls_->call(concat("end(", name_of(status), ')')); }

 private:
  std::shared_ptr<QueuedCalls> calls_;
  std::string id_;
};

struct TrackerLines : ::testing::Test {
  testing::TemporaryFolder folder;
  std::shared_ptr<QueuedCalls> calls = std::make_shared<QueuedCalls>();
  std::string id_file = folder / "kept/id";

  std::unique_ptr<TrackerLine> line(double flush_seconds = 3600, const std::string& id = "", bool is_resumed = false) {
    RunDescription run{.name = "run", .folder = folder.path(), .config = ""};
    run.is_resumed = is_resumed;
    return std::make_unique<TrackerLine>("t", std::make_unique<QueuedTracker>(calls, id), run, id_file, flush_seconds);
  }
  static void push(TrackerLine& line, const std::string& name, std::size_t capacity = 100) {
    line.push([name](Tracker& tracker) { tracker.text(name, ""); }, capacity);
  }
  // By kind and text, a line each.
  static std::string news(TrackerLine& line) {
    std::string all;
    for (const auto& [level, text] : line.take_news())
      all += concat(level == LogLevel::warning ? "" : "no warning: ", text, '\n');
    return all;
  }
  static bool ends(TrackerLine& line) {
    line.ask_end(RunStatus::finished);
    return line.wait_for_end(TrackerLine::Clock::now() + std::chrono::minutes(1));
  }
  static bool ends_at_once(TrackerLine& line) {
    line.ask_end(RunStatus::killed);
    return line.wait_for_end(TrackerLine::Clock::now());
  }
};

TEST_F(TrackerLines, DeliverAllInOrder) {
  const auto one = line();
  for (const char* name : {"a", "b", "c"}) push(*one, name);
  EXPECT_TRUE(ends(*one));
  EXPECT_EQ(calls->all, "begin a b c flush end(finished) ");
  EXPECT_TRUE(calls->is_gone);
  EXPECT_EQ(news(*one), "");
}

TEST_F(TrackerLines, FlushNothingWhereNothingWasDelivered) {
  const auto one = line();
  EXPECT_TRUE(ends(*one));
  EXPECT_EQ(calls->all, "begin end(finished) ");
}

TEST_F(TrackerLines, FlushSoSoonAfterWhatTheyDeliver) {
  const auto one = line(0);
  push(*one, "a");
  push(*one, "b");
  EXPECT_TRUE(ends(*one));
  EXPECT_EQ(calls->all, "begin a flush b flush end(finished) ");
}

TEST_F(TrackerLines, TellHowMuchHasNotArrivedWhereTheyAreLeftBehind) {
  for (const auto& [held, left] : std::vector<std::pair<std::string, std::string>>{
           {"begin", "5"}, {"a", "5"}, {"c", "3"}, {"e", "1"}, {"flush", ""}, {"end(killed)", ""}}) {
    calls = std::make_shared<QueuedCalls>();
    calls->held = held;
    const auto one = line();
    for (const char* name : {"a", "b", "c", "d", "e"}) push(*one, name);
    one->ask_end(RunStatus::killed);
    calls->wait_until_held();
    EXPECT_FALSE(ends_at_once(*one));
    EXPECT_EQ(news(*one), concat("tracker t: it has not ended in time and is left behind",
                                 left.empty() ? "" : concat("; what has not arrived: ", left), '\n'))
        << held;
    EXPECT_EQ(news(*one), "") << "once";
    calls->let_on_to_the_end();
    EXPECT_EQ(calls->all, "begin a b c d e flush end(killed) ");
  }
}

TEST_F(TrackerLines, TakeNoMoreThanTheirCapacityAndTellHowManyAreLeftOut) {
  calls->held = "a";
  const auto one = line();
  push(*one, "none", 0);
  EXPECT_EQ(news(*one), "tracker t: it is slower than the run, and some records are left out\n");
  push(*one, "a", 1);
  calls->wait_until_held();  // it waits no more
  for (const char* name : {"b", "c", "d", "e"}) push(*one, name, 2);
  push(*one, "f", 3);
  EXPECT_EQ(news(*one), "") << "it was told";
  calls->let_on();
  EXPECT_TRUE(ends(*one));
  EXPECT_EQ(news(*one), "tracker t: 3 records were left out\n");
  EXPECT_EQ(calls->all, "begin a b c f flush end(finished) ");
}

TEST_F(TrackerLines, AreToldOnceThatTheyHaveFailedAndThenEnd) {
  for (const char* thrown : {"begin", "a", "b"}) {
    calls = std::make_shared<QueuedCalls>();
    calls->thrown = calls->held = thrown;
    const auto one = line(0);
    for (const char* name : {"a", "b", "c"}) push(*one, name);
    calls->wait_until_held();
    calls->let_on();
    std::string told;
    while (told.empty()) told = news(*one);
    EXPECT_EQ(told, "tracker t: no space left; training goes on without it\n");
    push(*one, "late");
    EXPECT_TRUE(ends(*one));
    EXPECT_EQ(news(*one), "");
    const std::string before = std::string_view(thrown) == "begin" ? "" : "a ";
    const std::string second = std::string_view(thrown) == "b" ? "flush b " : "";
    EXPECT_EQ(calls->all, concat("begin ", before, second, "end(finished) "));
  }
}

// Nothing waits of what a tracker that has failed does not get.
TEST_F(TrackerLines, HaveNothingThatHasNotArrivedOnceTheyHaveFailed) {
  calls->thrown = calls->held = "a";
  const auto one = line();
  for (const char* name : {"a", "b", "c"}) push(*one, name);
  one->ask_end(RunStatus::killed);
  calls->wait_until_held();
  calls->let_on_until("end(killed)");
  calls->wait_until_held();
  EXPECT_FALSE(ends_at_once(*one));
  EXPECT_EQ(news(*one), "tracker t: no space left\ntracker t: it has not ended in time and is left behind\n")
      << "training does not go on";
  calls->let_on_to_the_end();
  EXPECT_EQ(calls->all, "begin a end(killed) ");
}

TEST_F(TrackerLines, KeepAnIdForTheNextSession) {
  const auto session = [&](const std::string& id, bool is_resumed) {
    calls = std::make_shared<QueuedCalls>();
    const auto one = line(3600, id, is_resumed);
    EXPECT_TRUE(ends(*one));
    return calls->all;
  };
  EXPECT_EQ(session("", false), "begin end(finished) ");
  EXPECT_FALSE(std::filesystem::exists(id_file));
  EXPECT_EQ(session("", true), "begin() end(finished) ");
  EXPECT_EQ(session("seven", false), "begin end(finished) ");
  EXPECT_EQ(read_text_file(id_file), "seven\n");
  write_text_file(id_file, "seven\nand more\n");
  EXPECT_EQ(session("seven", true), "begin(seven) end(finished) ");
  EXPECT_EQ(read_text_file(id_file), "seven\nand more\n") << "it is kept already";
  EXPECT_EQ(session("eight", true), "begin(seven) end(finished) ");
  EXPECT_EQ(read_text_file(id_file), "eight\n");
  write_text_file(id_file, "");
  EXPECT_EQ(session("", false), "begin end(finished) ");
  EXPECT_EQ(read_text_file(id_file), "");
}

}  // namespace
}  // namespace keel
