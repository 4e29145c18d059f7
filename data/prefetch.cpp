#include "keel/data/prefetch.h"

#include <utility>

#include "keel/runtime/error.h"

namespace keel {

PrefetchLoader::PrefetchLoader(std::shared_ptr<const BatchSource> loader, std::int64_t first_step, RangesOfStep ranges,
                               int depth, const Context& target, int workers)
    : loader_(std::move(loader)), ranges_(std::move(ranges)), depth_(depth), target_(target), step_(first_step) {
  KEEL_CHECK(loader_ != nullptr, "prefetching needs a loader");
  KEEL_CHECK(first_step >= 0, "the first step must not be negative, got ", first_step);
  KEEL_CHECK(depth >= 1, "at least one batch must be allowed to wait, got ", depth);
  KEEL_CHECK(workers >= 0, "batches are loaded by 0 threads of their own or more, not by ", workers);
  if (!ranges_) ranges_ = [this](std::int64_t step) { return std::vector<Rows>{{0, loader_->rows(step)}}; };
  if (target_) copies_ = target_.make_stream();
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
}

PrefetchLoader::~PrefetchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<Batch> PrefetchLoader::next() {
  load_here(1);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready() > 0 || (all_issued_ && taken_ == issued_); });
  if (ready() == 0) return std::nullopt;
  const auto first = waiting_.begin();
  if (first->second.error) std::rethrow_exception(first->second.error);
  Loaded loaded = std::move(first->second);
  waiting_.erase(first);
  ++taken_;
  lock.unlock();
  changed_.notify_all();
  if (target_) {
    const Stream reader = target_.stream();
    reader.wait(loaded.arrived);
    loaded.batch.used_by(reader);
  }
  return std::move(loaded.batch);
}

std::string PrefetchLoader::look_ahead(std::size_t count) {
  KEEL_CHECK(std::cmp_less_equal(count, depth_), "at most ", depth_, " batches wait, not ", count);
  load_here(count);
  std::unique_lock lock(mutex_);
  const auto failed = [this] {
    const std::size_t there = ready();
    return there > 0 && std::next(waiting_.begin(), static_cast<std::ptrdiff_t>(there) - 1)->second.error != nullptr;
  };
  changed_.wait(lock, [&] {
    const std::size_t there = ready();
    return there >= count || failed() || (all_issued_ && taken_ + static_cast<std::int64_t>(there) == issued_);
  });
  if (ready() > count || !failed()) return "";
  try {
    std::rethrow_exception(waiting_.at(taken_ + static_cast<std::int64_t>(ready()) - 1).error);
  } catch (const std::exception& error) { return error.what(); }
}

std::size_t PrefetchLoader::ready() const {
  std::size_t count = 0;
  for (const auto& [number, loaded] : waiting_) {
    if (number != taken_ + static_cast<std::int64_t>(count)) break;
    ++count;
    if (loaded.error) break;
  }
  return count;
}

std::optional<PrefetchLoader::Job> PrefetchLoader::take_job() {
  if (stopped_ || all_issued_) return std::nullopt;
  while (jobs_.empty() && step_ < loader_->steps()) {
    for (const Rows range : ranges_(step_)) jobs_.push_back({issued_++, step_, range});
    ++step_;
  }
  if (jobs_.empty()) {
    all_issued_ = true;
    return std::nullopt;
  }
  const Job job = jobs_.front();
  jobs_.pop_front();
  return job;
}

PrefetchLoader::Loaded PrefetchLoader::load(const Job& job) {
  try {
    return {loader_->load(job.step, job.range), {}, nullptr};
  } catch (...) { return {{}, {}, std::current_exception()}; }
}

void PrefetchLoader::put(const Job& job, Loaded loaded) {
  std::unique_lock lock(mutex_);
  // The next one to be taken never waits here.
  changed_.wait(lock, [&] { return job.number < taken_ + depth_ || stopped_; });
  if (stopped_) return;
  if (target_ && !loaded.error) {
    lock.unlock();
    try {
      const std::lock_guard alone(sending_);
      const StreamScope scope(target_, copies_);
      loaded.batch = transfer(loaded.batch, target_);
      loaded.arrived = copies_.record();
    } catch (...) { loaded = {{}, {}, std::current_exception()}; }
    lock.lock();
  }
  if (loaded.error) all_issued_ = true;
  waiting_.emplace(job.number, std::move(loaded));
  lock.unlock();
  changed_.notify_all();
}

bool PrefetchLoader::load_next() {
  std::optional<Job> job;
  Loaded loaded;
  {
    const std::lock_guard lock(mutex_);
    try {
      job = take_job();
    } catch (...) {
      // What a step has could not be told: that is the fate of its batch.
      job = Job{issued_++, step_, {}};
      loaded.error = std::current_exception();
      all_issued_ = true;
    }
  }
  if (!job) return false;
  if (!loaded.error) loaded = load(*job);
  put(*job, std::move(loaded));
  return true;
}

void PrefetchLoader::load_here(std::size_t count) {
  if (!threads_.empty()) return;
  const auto lacking = [&] {
    const std::lock_guard lock(mutex_);
    return ready() < count;
  };
  while (lacking() && load_next()) {}
}

void PrefetchLoader::work() {
  while (load_next()) {}
  changed_.notify_all();
}

}  // namespace keel
