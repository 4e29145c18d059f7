#include "keel/data/prefetch.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {

PrefetchLoader::PrefetchLoader(std::shared_ptr<const BatchSource> loader, std::int64_t first_step,
                               std::vector<Rows> ranges, int depth, const Context& target)
    : loader_(std::move(loader)),
      first_step_(first_step),
      ranges_(std::move(ranges)),
      depth_(static_cast<std::size_t>(depth)),
      target_(target) {
  KEEL_CHECK(loader_ != nullptr, "prefetching needs a loader");
  KEEL_CHECK(first_step >= 0, "the first step must not be negative, got ", first_step);
  KEEL_CHECK(depth >= 1, "at least one batch must be allowed to wait, got ", depth);
  if (ranges_.empty()) ranges_.push_back({0, BatchSource::kEndless});
  KEEL_CHECK(first_step >= loader_->steps() || ranges_[0].begin < loader_->rows(first_step), "rows from ",
             ranges_[0].begin, " on are outside the ", loader_->rows(first_step), " rows of step ", first_step);
  if (target_) copies_ = target_.make_stream();
  thread_ = std::thread([this] { work(); });
}

PrefetchLoader::~PrefetchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Batch> PrefetchLoader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_.empty() || finished_; });
  if (waiting_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  Sent sent = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  changed_.notify_all();
  if (target_) {
    const Stream reader = target_.stream();
    reader.wait(sent.arrived);
    sent.batch.used_by(reader);
  }
  return std::move(sent.batch);
}

std::string PrefetchLoader::look_ahead(std::size_t count) {
  KEEL_CHECK(count <= depth_, "at most ", depth_, " batches wait, not ", count);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.size() >= count || finished_; });
  if (waiting_.size() >= count || !error_) return "";
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& error) { return error.what(); }
}

bool PrefetchLoader::put(const Batch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < depth_ || stopped_; });
  if (stopped_) return false;
  lock.unlock();
  Sent sent = send(batch);
  lock.lock();
  waiting_.push_back(std::move(sent));
  lock.unlock();
  changed_.notify_all();
  return true;
}

PrefetchLoader::Sent PrefetchLoader::send(const Batch& batch) const {
  if (!target_) return {batch, {}};
  const StreamScope scope(target_, copies_);
  return {transfer(batch, target_), copies_.record()};
}

void PrefetchLoader::work() {
  std::exception_ptr error;
  bool wanted = true;
  try {
    for (std::int64_t step = first_step_; wanted && step < loader_->steps(); ++step) {
      const std::int64_t rows = loader_->rows(step);
      for (std::size_t i = 0; wanted && i < ranges_.size(); ++i) {
        const Rows range = {std::min(ranges_[i].begin, rows), std::min(ranges_[i].end, rows)};
        if (range.begin < range.end) wanted = put(loader_->load(step, range));
      }
    }
  } catch (...) { error = std::current_exception(); }
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
  }
  changed_.notify_all();
}

}  // namespace keel
