#include "keel/trainer/tracker_host.h"

#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "keel/trainer/tracker_line.h"

namespace keel {

namespace {

std::shared_ptr<const std::vector<Logged>> chosen(std::span<const Logged> values,
                                                  const std::vector<std::string>& patterns) {
  std::vector<Logged> some;
  for (const Logged& value : values)
    if (std::ranges::any_of(patterns, [&](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), value.name.c_str(), 0) == 0;
        }))
      some.push_back(value);
  return std::make_shared<const std::vector<Logged>>(std::move(some));
}

}  // namespace

std::string_view name_of(RunStatus status) {
  switch (status) {
    case RunStatus::finished: return "finished";
    case RunStatus::failed: return "failed";
    case RunStatus::killed: return "killed";
  }
  return "";
}

TrackerHost::TrackerHost(std::vector<HostedTracker> trackers, const RunDescription& run,
                         std::function<void(LogLevel, std::string_view)> tell, TrackerHostOptions options)
    : tell_(std::move(tell)), options_(options) {
  for (HostedTracker& each : trackers) {
    RunDescription own = run;
    if (!each.run_name.empty()) own.name = each.run_name;
    own.tags.insert(own.tags.end(), each.tags.begin(), each.tags.end());
    std::string id_file = concat(run.folder, "/trackers/", each.label, ".id");
    lines_.push_back({each.every, std::move(each.values),
                      std::make_unique<TrackerLine>(std::move(each.label), std::move(each.tracker), std::move(own),
                                                    std::move(id_file), options_.flush_seconds)});
  }
}

TrackerHost::~TrackerHost() {
  try {
    end(RunStatus::failed);
  } catch (const std::exception&) {}  // of who is told; the trackers have ended
}

void TrackerHost::push(const std::function<void(Tracker&)>& delivery, std::size_t capacity) {
  for (const Line& each : lines_) each.line->push(delivery, capacity);
  tell_news();
}

void TrackerHost::log(std::int64_t step, std::span<const Logged> values, std::int64_t before) {
  if (lines_.empty()) return;
  const double seconds = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto all = std::make_shared<const std::vector<Logged>>(values.begin(), values.end());
  for (const Line& each : lines_) {
    if (before != kForAll && !each.every.is_none() && !each.every.is_due_between(before, step)) continue;
    const auto kept = each.values.empty() ? all : chosen(values, each.values);
    if (kept->empty() && !values.empty()) continue;
    each.line->push([step, seconds, kept](Tracker& tracker) { tracker.log(step, seconds, *kept); }, options_.capacity);
  }
  tell_news();
}

void TrackerHost::text(std::string_view name, std::string_view text) {
  push([name = std::string(name), text = std::string(text)](Tracker& tracker) { tracker.text(name, text); },
       options_.capacity + TrackerHostOptions::kFurther);
}

void TrackerHost::artifact(std::string_view name, std::string_view path) {
  push([name = std::string(name), path = std::string(path)](Tracker& tracker) { tracker.artifact(name, path); },
       options_.capacity + TrackerHostOptions::kFurther);
}

void TrackerHost::end(RunStatus status) {
  if (std::exchange(has_ended_, true)) return;
  const auto deadline = TrackerLine::Clock::now() + std::chrono::duration_cast<TrackerLine::Clock::duration>(
                                                        std::chrono::duration<double>(options_.end_seconds));
  for (const Line& each : lines_) each.line->ask_end(status);
  for (const Line& each : lines_) each.line->wait_for_end(deadline);
  tell_news();
}

void TrackerHost::tell_news() {
  for (const Line& each : lines_)
    for (const auto& [level, text] : each.line->take_news()) tell_(level, text);
}

}  // namespace keel
