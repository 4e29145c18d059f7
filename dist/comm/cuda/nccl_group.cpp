#include "keel/dist/comm/cuda/nccl_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "keel/dist/comm/cuda/launch_order.h"
#include "keel/runtime/device_api.h"

namespace keel::cuda {
namespace {

// How many finished collectives may wait to be forgotten.
constexpr std::size_t kFlightsKept = 64;
// A device may need a moment, and be asked again, to say that it is done.
constexpr int kQuestions = 200;
constexpr auto kMoment = std::chrono::microseconds(500);
// The reason of another rank's failure may come after its effect, once that rank has freed what its device holds.
constexpr auto kTimeToTell = std::chrono::seconds(2);

// What hear() says; asks again for so long while it says nothing.
template <class Hear>
std::string await_reason(const Hear& hear, std::chrono::steady_clock::duration patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (std::string reason = hear(); !reason.empty()) return reason;
    if (std::chrono::steady_clock::now() >= end) return {};
    std::this_thread::sleep_for(kMoment);
  }
}

}  // namespace

NcclGroup::NcclGroup(const Context& context, std::unique_ptr<Communicator> control, const NcclOptions& options)
    : context_(context),
      stream_(stream_for_collectives(context)),
      options_(options),
      timeout_(options.timeout.value_or(control->timeout())),
      rank_(control->rank()),
      size_(control->size()),
      nodes_(control->nodes()),
      alarm_(control->alarm()),
      control_(std::move(control)),
      handle_([this] { check(); }),
      watcher_([this] { watch(); }) {}

Event NcclGroup::queue(const std::string& what, const std::function<void(NcclHandle&)>& f,
                       std::chrono::milliseconds timeout) {
  check();
  try {
    {
      const std::lock_guard lock(mutex_);
      while (flights_.size() > kFlightsKept && flights_.front().end->has_passed()) flights_.pop_front();
      flights_.push_back({what, Clock::now(), timeout});
    }
    context_.api().make_current();
    const StreamScope scope(context_, stream_);
    f(handle_);
    const Event end = stream_.record();
    const std::lock_guard lock(mutex_);
    flights_.back().end = end;
    return end;
  } catch (const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    const std::string own = concat("rank ", rank_, " failed in ", what, ": ", error.what());
    find(own, known != nullptr && known->kind() == ErrorKind::peer ? kTimeToTell : Clock::duration::zero());
    if (failure() != own) throw_failure();
    throw;
  }
}

// Has ended when f() returns.
void NcclGroup::form(const std::string& what, const std::function<void(NcclHandle&)>& f) {
  queue(what, f, options_.forming_timeout);
  const std::lock_guard lock(mutex_);
  if (!flights_.empty()) flights_.pop_back();  // else the watcher has
}

void NcclGroup::ask_control(const std::function<void(Communicator&)>& f) {
  if (control_ == nullptr) throw Error(concat("the communicator of rank ", rank_, " has gone"), ErrorKind::peer);
  try {
    f(*control_);
  } catch (const std::exception& error) {
    note(error.what(), true);
    handle_.give_up();
    throw;
  }
}

void NcclGroup::go_on_to(const std::string& place) {
  const std::lock_guard lock(mutex_);
  next_place_ = place;
}

void NcclGroup::check() {
  if (!has_failed()) {
    if (const std::string reason = hear_control(); !reason.empty()) {
      note(reason, true);
      handle_.give_up();
    } else if (const auto error = handle_.error()) {
      find(concat("NCCL reports to rank ", rank_, ": ", *error), kTimeToTell);
    }
  }
  throw_failure();
}

// A failure, which may be the effect of one that another rank is about to tell: that one's reason counts then.
void NcclGroup::find(const std::string& own, Clock::duration patience) {
  const std::string reason = has_failed() ? "" : await_reason([this] { return hear_control(); }, patience);
  note(reason.empty() ? own : reason, !reason.empty());
  tell_control();
  handle_.give_up();
}

std::string NcclGroup::hear_control() {
  if (control_ == nullptr) return {};
  try {
    control_->poll();
  } catch (const std::exception& error) { return error.what(); }
  return {};
}

void NcclGroup::throw_failure() {
  if (!has_failed()) return;
  // What the watcher has found may be the effect of what another rank is about to tell.
  if (untold_ && alarm_ == nullptr)
    if (const std::string reason = await_reason([this] { return hear_control(); }, kTimeToTell); !reason.empty())
      replace_failure(reason);
  tell_control();
  throw Error(failure(), ErrorKind::peer);
}

void NcclGroup::tell_control() noexcept {
  if (control_ != nullptr && untold_.exchange(false)) control_->fail(failure());
}

void NcclGroup::fail(const std::string& reason) noexcept {
  note(reason, false);
  tell_control();
  handle_.give_up();
}

std::string NcclGroup::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// The first one stays.
void NcclGroup::note(const std::string& reason, bool is_told) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  failure_ = reason;
  untold_ = !is_told;
  failed_.store(true, std::memory_order_release);
}

void NcclGroup::replace_failure(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  failure_ = reason;
  untold_ = false;
}

void NcclGroup::drain() {
  Event last;
  {
    const std::lock_guard lock(mutex_);
    if (!flights_.empty() && flights_.back().end) last = *flights_.back().end;
  }
  try {
    while (!last.has_passed()) {
      check();
      std::this_thread::sleep_for(kMoment);
    }
  } catch (const std::exception& error) {
    fail(concat("rank ", rank_, " failed: ", error.what()));
    throw;
  }
  check();
}

void NcclGroup::close() noexcept {
  if (!watcher_.joinable()) return;
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  try {
    if (!unwinding) {
      drain();
      form("the end of its group" + next_place_, [](NcclHandle& nccl) { nccl.finish(); });
    }
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
    note(concat("rank ", rank_, " has left its group"), true);
    tell_control();
    handle_.give_up();
  }
  alarm_.reset();
  control_.reset();
}

void NcclGroup::watch() {
  const auto interval = std::clamp<std::chrono::milliseconds>(
      std::min(timeout_, options_.forming_timeout) / 10, std::chrono::milliseconds(5), std::chrono::milliseconds(200));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [&] { return closing_; })) {
    lock.unlock();
    if (!has_failed()) look();
    lock.lock();
  }
}

// Notes the first failure that there is, tells the others where it may, and ends this rank's work.
void NcclGroup::look() {
  std::string reason = hear_alarm(), found;
  if (reason.empty()) {
    const auto error = handle_.error();
    found = error ? concat("NCCL reports to rank ", rank_, ": ", *error) : find_late();
    // A rank that gave up, and so caused this, tells why.
    if (error && alarm_ != nullptr) reason = await_reason([this] { return hear_alarm(); }, kTimeToTell);
  }
  if (!reason.empty()) {
    note(reason, true);
  } else if (!found.empty()) {
    note(found, false);
    if (alarm_ != nullptr && untold_.exchange(false)) alarm_->raise(failure());
  } else {
    return;
  }
  handle_.give_up();
}

std::string NcclGroup::hear_alarm() {
  if (alarm_ == nullptr) return {};
  try {
    const std::string reason = alarm_->heard();
    return reason.empty() ? reason : concat(reason, "; rank ", rank_, " was ", place());
  } catch (const std::exception& error) { return error.what(); }
}

// The oldest collective that takes too long, as a failure, or "".
std::string NcclGroup::find_late() {
  std::unique_lock lock(mutex_);
  while (!closing_ && !flights_.empty() && Clock::now() - flights_.front().begun > flights_.front().timeout) {
    const Flight oldest = flights_.front();
    bool passed = false;
    try {
      for (int i = 0; i < kQuestions && oldest.end && !passed; ++i) {
        passed = oldest.end->has_passed();
        if (!passed) changed_.wait_for(lock, kMoment);
      }
    } catch (const std::exception& error) {
      return concat("rank ", rank_, " failed in ", oldest.what, ": ", error.what());
    }
    if (!passed) return concat("rank ", rank_, " gave up after ", oldest.timeout.count(), " ms in ", oldest.what);
    if (!flights_.empty() && flights_.front().begun == oldest.begun) flights_.pop_front();
  }
  return {};
}

// Where this rank is, for messages.
std::string NcclGroup::place() {
  const std::lock_guard lock(mutex_);
  for (const Flight& flight : flights_) {
    bool passed = false;
    try {
      passed = flight.end && flight.end->has_passed();
    } catch (const std::exception&) {}  // nor will it
    if (!passed) return flight.what == kJoining ? flight.what : "in " + flight.what;
  }
  return "before its next collective" + next_place_;
}

}  // namespace keel::cuda
