#include "keel/dist/comm/cuda/nccl_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "keel/runtime/device_api.h"

namespace keel::cuda {
namespace {

// How many finished collectives may wait to be forgotten.
constexpr std::size_t kFlightsKept = 64;
// How long NCCL's own calls may hold up their end. One that hangs is what the end is for, so it comes then anyway.
constexpr auto kPatience = std::chrono::seconds(1);
// A device may need a moment, and be asked again, to say that it is done.
constexpr int kQuestions = 200;
constexpr auto kMoment = std::chrono::microseconds(500);
// The reason of another rank's failure may come after its effect.
constexpr auto kTimeToTell = std::chrono::milliseconds(500);

}  // namespace

NcclGroup::NcclGroup(const Context& context, std::unique_ptr<Communicator> control, const NcclOptions& options,
                     ncclComm_t comm)
    : context_(context),
      stream_(context.make_stream(true)),
      options_(options),
      timeout_(options.timeout.value_or(control->timeout())),
      rank_(control->rank()),
      size_(control->size()),
      nodes_(control->nodes()),
      comm_(comm),
      control_(std::move(control)),
      watcher_([this] { watch(); }) {}

Event NcclGroup::queue(const std::string& what, const std::function<void(ncclComm_t)>& f) {
  throw_failure();
  {
    const std::lock_guard lock(mutex_);
    while (flights_.size() > kFlightsKept && flights_.front().end->has_passed()) flights_.pop_front();
    flights_.push_back({what, Clock::now()});
  }
  try {
    const std::lock_guard calling(calls_);
    const ncclComm_t comm = comm_.load();
    if (comm == nullptr) throw Error(failure(), ErrorKind::peer);
    context_.api().make_current();
    const StreamScope scope(context_, stream_);
    f(comm);
    const Event end = stream_.record();
    const std::lock_guard lock(mutex_);
    flights_.back().end = end;
    return end;
  } catch (const std::exception& error) {
    check();  // another rank's failure may be the cause
    fail(concat("rank ", rank_, " failed in ", what, ": ", error.what()));
    throw;
  }
}

void NcclGroup::ask_control(const std::function<void(Communicator&)>& f) {
  const std::lock_guard lock(asking_);
  if (control_ == nullptr) throw Error(concat("the communicator of rank ", rank_, " has gone"), ErrorKind::peer);
  try {
    f(*control_);
  } catch (const std::exception& error) {
    note(error.what());
    end_work();
    throw;
  }
}

void NcclGroup::check() {
  if (!has_failed()) {
    meet_control();
    look(true);
  }
  throw_failure();
}

std::string NcclGroup::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclGroup::throw_failure() {
  if (!has_failed()) return;
  meet_control();
  throw Error(failure(), ErrorKind::peer);
}

// Whether it is the first.
bool NcclGroup::note(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_) return false;
  failure_ = reason;
  failed_.store(true, std::memory_order_release);
  return true;
}

void NcclGroup::fail(const std::string& reason) noexcept {
  if (note(reason)) untold_ = true;
  meet_control();
  end_work();
}

void NcclGroup::end_work() noexcept {
  std::unique_lock lock(calls_, std::defer_lock);
  static_cast<void>(lock.try_lock_for(kPatience));
  const ncclComm_t comm = comm_.exchange(nullptr);
  if (comm != nullptr) ncclCommAbort(comm);
}

// Tells the other ranks of a failure here, or hears of one there; later, where the control is in use.
void NcclGroup::meet_control() noexcept {
  std::unique_lock turn(asking_, std::try_to_lock);
  if (!turn.owns_lock() || control_ == nullptr) return;
  if (untold_.exchange(false)) return control_->fail(failure());
  if (has_failed()) return;
  try {
    control_->poll();
  } catch (const std::exception& error) {
    turn.unlock();
    note(error.what());
    end_work();
  }
}

// Asks NCCL for errors, unless a call of it is going on.
void NcclGroup::look(bool may_ask) noexcept {
  ncclResult_t result = ncclSuccess;
  std::string detail;
  {
    const std::unique_lock lock(calls_, std::try_to_lock);
    const ncclComm_t comm = lock.owns_lock() ? comm_.load() : nullptr;
    if (comm == nullptr || ncclCommGetAsyncError(comm, &result) != ncclSuccess) return;
    if (result == ncclSuccess || result == ncclInProgress) return;
    if (const char* const text = ncclGetLastError(comm)) detail = text;
  }
  // A rank that gave up, and so caused this, tells why.
  for (const auto end = Clock::now() + kTimeToTell; may_ask && !has_failed() && Clock::now() < end;) {
    meet_control();
    std::this_thread::sleep_for(kMoment);
  }
  if (note(concat("NCCL reports to rank ", rank_, ": ", ncclGetErrorString(result), "; ", detail))) untold_ = true;
  meet_control();
  end_work();
}

// The oldest collective that takes too long, or "".
std::string NcclGroup::find_late() {
  std::unique_lock lock(mutex_);
  while (!closing_ && !flights_.empty() && Clock::now() - flights_.front().begun > timeout_) {
    const Flight oldest = flights_.front();
    bool passed = false;
    for (int i = 0; i < kQuestions && oldest.end && !passed; ++i) {
      passed = oldest.end->has_passed();
      if (!passed) changed_.wait_for(lock, kMoment);
    }
    if (!passed) return oldest.what;
    if (!flights_.empty() && flights_.front().begun == oldest.begun) flights_.pop_front();
  }
  return {};
}

void NcclGroup::watch() {
  const auto interval = std::clamp<std::chrono::milliseconds>(timeout_ / 10, std::chrono::milliseconds(5),
                                                              std::chrono::milliseconds(200));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [&] { return closing_; })) {
    lock.unlock();
    if (options_.watch_control) meet_control();
    if (!has_failed()) look(options_.watch_control);
    if (const std::string late = has_failed() ? "" : find_late(); !late.empty()) {
      if (note(concat("rank ", rank_, " gave up after ", timeout_.count(), " ms in ", late))) untold_ = true;
      if (options_.watch_control) meet_control();
      end_work();
    }
    lock.lock();
  }
}

void NcclGroup::drain() {
  Event last;
  {
    const std::lock_guard lock(mutex_);
    if (!flights_.empty() && flights_.back().end) last = *flights_.back().end;
  }
  while (!last.has_passed()) {
    check();
    std::this_thread::sleep_for(kMoment);
  }
  check();
}

void NcclGroup::close() noexcept {
  if (!watcher_.joinable()) return;
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  try {
    if (!unwinding) drain();
  } catch (const std::exception&) {
    // Every call has said so, or will.
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  if (unwinding || has_failed()) {
    note(concat("rank ", rank_, " has left its group"));
    if (untold_) meet_control();
    end_work();
  } else if (const ncclComm_t comm = comm_.exchange(nullptr); comm != nullptr) {
    ncclCommDestroy(comm);
  }
  control_.reset();
}

}  // namespace keel::cuda
