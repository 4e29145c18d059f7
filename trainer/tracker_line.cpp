#include "keel/trainer/tracker_line.h"

#include <signal.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

// Threads that are made while it lives take no signals: those of the process are for others, and a pipe that nobody
// reads is an error of its write.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

void keep_id(const std::string& file, const std::string& id) {
  if (id.empty()) return;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  write_text_file(file, id + "\n");
}

std::string kept_id(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return "";
  const std::string text = read_text_file(file);
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct TrackerLine::Shared {
  std::string label, id_file;
  double flush_seconds = 0;
  // Of the tracker's thread alone.
  std::unique_ptr<Tracker> tracker;
  RunDescription run;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Delivery> queue;
  std::int64_t waiting = 0, left_out = 0;  // waiting: in the queue, and the one that is being delivered
  bool has_failed = false, is_over = false;
  std::optional<RunStatus> end;
  News news;
  std::atomic<bool> has_news = false;

  void tell(LogLevel level, const std::string& text) {
    const std::lock_guard lock(mutex);
    add_news(level, text);
  }
  void add_news(LogLevel level, const std::string& text) {
    news.emplace_back(level, concat("tracker ", label, ": ", text));
    has_news = true;
  }

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (!has_failed) add_news(LogLevel::warning, end ? why : why + "; training goes on without it");
    has_failed = true;
    waiting -= static_cast<std::int64_t>(queue.size());
    queue.clear();
  }

  // The tracker fails by what f throws.
  template <class F>
  void attempt(const F& f) {
    try {
      f();
    } catch (const std::exception& error) { fail(error.what()); } catch (...) {
      fail("it has thrown something that is no std::exception");
    }
  }

  void begin() {
    attempt([&] {
      if (run.is_resumed) run.resumed_id = kept_id(id_file);
      tracker->begin(run);
      if (const std::string id = tracker->id(); id != run.resumed_id || !run.is_resumed) keep_id(id_file, id);
    });
  }
};

TrackerLine::TrackerLine(std::string label, std::unique_ptr<Tracker> tracker, RunDescription run, std::string id_file,
                         double flush_seconds)
    : shared_(std::make_shared<Shared>()) {
  shared_->label = std::move(label);
  shared_->id_file = std::move(id_file);
  shared_->flush_seconds = flush_seconds;
  shared_->tracker = std::move(tracker);
  shared_->run = std::move(run);
  shared_->run.warn = [shared = shared_.get()](std::string_view text) {
    shared->tell(LogLevel::warning, std::string(text));
  };
  const NoSignals blocked;
  try {
    thread_ = std::thread([shared = shared_] { work(shared); });
  } catch (const std::system_error& error) {
    shared_->fail(concat("there is no thread for it: ", error.what()));
    shared_->is_over = true;
  }
}

TrackerLine::~TrackerLine() {
  if (thread_.joinable()) thread_.detach();
}

void TrackerLine::push(Delivery delivery, std::size_t capacity) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->has_failed) return;
    if (shared_->queue.size() >= capacity) {
      if (shared_->left_out++ == 0)
        shared_->add_news(LogLevel::warning, "it is slower than the run, and some records are left out");
      return;
    }
    shared_->queue.push_back(std::move(delivery));
    ++shared_->waiting;
  }
  shared_->changed.notify_all();
}

void TrackerLine::ask_end(RunStatus status) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->end = status;
  }
  shared_->changed.notify_all();
}

bool TrackerLine::wait_for_end(Clock::time_point deadline) {
  bool is_over = false;
  {
    std::unique_lock lock(shared_->mutex);
    is_over = shared_->changed.wait_until(lock, deadline, [&] { return shared_->is_over; });
    if (shared_->left_out > 0)
      shared_->add_news(LogLevel::warning, concat(shared_->left_out, " records were left out"));
    if (!is_over)
      shared_->add_news(
          LogLevel::warning,
          concat("it has not ended in time and is left behind",
                 shared_->waiting == 0 ? std::string() : concat("; what has not arrived: ", shared_->waiting)));
  }
  if (is_over && thread_.joinable()) thread_.join();
  return is_over;
}

TrackerLine::News TrackerLine::take_news() {
  if (!shared_->has_news) return {};
  const std::lock_guard lock(shared_->mutex);
  shared_->has_news = false;
  return std::exchange(shared_->news, {});
}

void TrackerLine::work(const std::shared_ptr<Shared>& shared) {
  Shared& line = *shared;
  line.begin();
  std::optional<Clock::time_point> flush_due;  // where something was delivered since the last flush
  const auto flush = [&] {
    flush_due.reset();
    line.attempt([&] { line.tracker->flush(); });
  };
  std::unique_lock lock(line.mutex);
  const auto has_work = [&] { return !line.queue.empty() || line.end; };
  while (true) {
    if (!flush_due) line.changed.wait(lock, has_work);
    else if (!line.changed.wait_until(lock, *flush_due, has_work) || Clock::now() >= *flush_due) {
      const bool is_due = !line.has_failed;
      lock.unlock();
      if (is_due) flush();
      flush_due.reset();
      lock.lock();
      continue;
    }
    if (line.queue.empty()) break;  // and the end was asked for
    const Delivery next = std::move(line.queue.front());
    line.queue.pop_front();
    lock.unlock();
    line.attempt([&] { next(*line.tracker); });
    if (!flush_due)
      flush_due =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(line.flush_seconds));
    lock.lock();
    --line.waiting;
  }
  const RunStatus status = *line.end;
  const bool flushes = flush_due && !line.has_failed;
  lock.unlock();
  if (flushes) flush();
  line.attempt([&] { line.tracker->end(status); });
  line.tracker.reset();
  lock.lock();
  line.is_over = true;
  lock.unlock();
  line.changed.notify_all();
}

}  // namespace keel
