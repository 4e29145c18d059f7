#include "keel/runtime/emulation/block.h"

#include <algorithm>
#include <cstring>

#include "keel/runtime/error.h"

namespace keel::emulation {
namespace {

constexpr std::size_t kCopyBytes = 16;  // of an asynchronous copy
constexpr std::uint32_t kNoThread = ~std::uint32_t{0};

std::string place(const std::source_location& where) { return concat(where.file_name(), ':', where.line()); }

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

// The number in the running block of the thread that the probe waits for.
std::uint32_t thread_to_stop(const Grid& grid, const Probe& probe) {
  const Index3 &b = probe.block, &t = probe.thread;
  const Extent3& extent = grid.block;
  if (probe.kernel != grid.kernel || b.x != here.block.x || b.y != here.block.y || b.z != here.block.z)
    return kNoThread;
  if (t.x >= extent.x || t.y >= extent.y || t.z >= extent.z) return kNoThread;
  return t.x + extent.x * (t.y + extent.y * t.z);
}

}  // namespace

void Block::run(const Grid& grid, const std::vector<std::uint32_t>& threads, const GridOptions& options,
                FunctionRef<void()> body) {
  grid_ = &grid;
  body_ = &body;
  order_ = &threads;
  next_ = busy_ = 0;
  meetings_.clear();
  block_epoch_ = 1;
  warp_epochs_.assign((threads.size() + 31) / 32, 1);
  failure_ = nullptr;
  shared_.begin_block(grid.dynamic_shared_bytes, options.check_races);
  stop_ = options.probe == nullptr ? kNoThread : thread_to_stop(grid, *options.probe);

  while (next_ < threads.size() && !failure_) {
    if (busy_ == workers_.size()) workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_[busy_++];
    worker.block = this;
    worker.wait = Wait::none;
    worker.fibre.begin(work, &worker);
    resume(worker);
  }
  while (!failure_) {
    bool moved = false, alive = false;
    for (std::size_t i = 0; i < busy_ && !failure_; ++i) {
      Worker& worker = *workers_[i];
      if (worker.fibre.done()) continue;
      alive = true;
      if (worker.wait != Wait::none) continue;
      moved = true;
      resume(worker);
    }
    if (!alive) break;
    if (!moved && !failure_) open_barrier();
  }
  if (failure_) std::rethrow_exception(failure_);
  try {
    shared_.check_guards();
  } catch (const Error& error) {
    throw Error(concat(grid.kernel, ", block (", here.block.x, ", ", here.block.y, ", ", here.block.z, "): "), error);
  }
}

void Block::work(void* argument) {
  auto& worker = *static_cast<Worker*>(argument);
  worker.block->run_threads(worker);
}

void Block::run_threads(Worker& worker) {
  try {
    while (next_ < order_->size()) {
      const std::uint32_t t = (*order_)[next_++];
      const Extent3& extent = here.block_extent;
      worker.thread = t;
      worker.copies.clear();
      worker.groups = 0;
      here.thread = {t % extent.x, t / extent.x % extent.y, t / extent.x / extent.y};
      if (t == stop_) keel_stop_here(grid_->code, grid_->kernel);
      (*body_)();
      if (!worker.copies.empty())
        fail(concat("the thread ends before ", worker.copies.size(), " of its copies to shared memory have arrived"),
             worker.copies.front().where);
    }
  } catch (...) { failure_ = std::current_exception(); }
}

void Block::resume(Worker& worker) {
  worker_ = &worker;
  const Extent3& extent = here.block_extent;
  const std::uint32_t t = worker.thread;
  here.thread = {t % extent.x, t / extent.x % extent.y, t / extent.x / extent.y};
  worker.fibre.resume();
}

void Block::park(Wait wait, const std::source_location& where) {
  Worker& worker = *worker_;
  worker.wait = wait;
  worker.where = where;
  worker.fibre.suspend();
}

void Block::wait_for_block(const std::source_location& where) { park(Wait::block, where); }

void Block::wait_for_warp(unsigned mask, void* record, void (*act)(void* const records[32]),
                          const std::source_location& where, bool orders_memory) {
  const std::uint32_t t = thread(), warp = t / 32, own = t % 32;
  if ((mask >> own & 1) == 0) fail(concat("lane ", own, " is not in its own mask ", mask), where);
  auto meeting = std::find_if(meetings_.begin(), meetings_.end(), [&](const Meeting& m) {
    return m.warp == warp && m.mask == mask && (m.arrived >> own & 1) == 0;
  });
  if (meeting == meetings_.end()) {
    Meeting fresh;
    fresh.warp = warp;
    fresh.mask = mask;
    fresh.where = where;
    meeting = meetings_.insert(meetings_.end(), fresh);
  } else if (!same_place(meeting->where, where)) {
    fail(concat("lanes of one warp meet at different calls, this one and ", place(meeting->where)), where);
  }
  meeting->arrived |= 1u << own;
  meeting->records[own] = record;
  meeting->workers[own] = worker_;
  if (meeting->arrived != mask) return park(Wait::warp, where);
  const Meeting complete = *meeting;
  meetings_.erase(meeting);
  act(complete.records);
  if (orders_memory) ++warp_epochs_[warp];
  for (Worker* worker : complete.workers)
    if (worker != nullptr) worker->wait = Wait::none;
}

void Block::open_barrier() {
  const Worker* first = nullptr;
  std::size_t waiting = 0;
  for (std::size_t i = 0; i < busy_; ++i) {
    Worker& worker = *workers_[i];
    if (worker.fibre.done()) continue;
    if (worker.wait != Wait::block) fail_stuck();
    if (first == nullptr) first = &worker;
    if (!same_place(first->where, worker.where)) fail_stuck();
    ++waiting;
  }
  if (waiting != order_->size()) fail_stuck();
  ++block_epoch_;
  for (std::size_t i = 0; i < busy_; ++i) workers_[i]->wait = Wait::none;
}

void Block::fail_stuck() const {
  const Worker* first = nullptr;
  std::size_t waiting = 0;
  std::string other;
  for (std::size_t i = 0; i < busy_; ++i) {
    const Worker& worker = *workers_[i];
    if (worker.fibre.done()) continue;
    ++waiting;
    if (first == nullptr) first = &worker;
    else if (other.empty() && (worker.wait != first->wait || !same_place(worker.where, first->where)))
      other = concat(", ", name_of_thread(worker.thread), " waits at ", place(worker.where));
  }
  const std::size_t ended = order_->size() - waiting;
  throw Error(
      concat(here_is(first->thread), ": divergent barrier: ", name_of_thread(first->thread), " waits ",
             first->wait == Wait::block ? "for the block" : "for its warp", " at ", place(first->where), other,
             ended == 0 ? std::string() : concat(", and ", ended, " threads of ", order_->size(), " have ended")),
      ErrorKind::internal);
}

void Block::touch(const std::byte* address, std::size_t bytes, bool write, const std::source_location& where) {
  const std::uint32_t t = thread();
  const std::optional<Access> other =
      shared_.touch(address, bytes, write, {t, block_epoch_, warp_epochs_[t / 32], where.line(), where.file_name()});
  if (other)
    fail(concat("race on shared memory: nothing orders this ", write ? "write" : "read", " after what ",
                name_of_thread(other->thread), " did at ", other->file, ':', other->line),
         where);
}

std::byte* Block::shared_array(const void* key, std::size_t bytes) {
  try {
    return shared_.array(key, bytes);
  } catch (const Error& error) { throw Error(concat(here_is(thread()), ": "), error); }
}

void Block::check_shared(const std::byte* address, std::size_t bytes, std::size_t alignment,
                         const std::source_location& where) const {
  if (!shared_.holds(address, bytes))
    fail(concat("an access to ", bytes, " bytes that lie in no array of shared memory"), where);
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    fail(concat("an access to shared memory at no multiple of ", alignment, " bytes"), where);
}

// The device may write from here on, so whoever still uses the place is in a race. NaN for whoever looks too early.
void Block::start_copy(std::byte* to, const std::byte* from, std::size_t bytes, const std::source_location& where) {
  check_shared(to, kCopyBytes, kCopyBytes, where);
  if (bytes > kCopyBytes) fail(concat("an asynchronous copy of ", bytes, " bytes; at most ", kCopyBytes), where);
  if (reinterpret_cast<std::uintptr_t>(from) % kCopyBytes != 0)
    fail(concat("an asynchronous copy from no multiple of ", kCopyBytes, " bytes"), where);
  touch(to, kCopyBytes, true, where);
  std::memset(to, 0xff, kCopyBytes);
  worker_->copies.push_back({to, from, bytes, worker_->groups, where});
}

void Block::finish_copies(std::uint32_t groups) {
  std::vector<Copy>& copies = worker_->copies;
  const auto late = std::find_if(copies.begin(), copies.end(), [&](const Copy& copy) {
    return std::uint64_t{copy.group} + groups >= worker_->groups;
  });
  for (auto copy = copies.begin(); copy != late; ++copy) {
    touch(copy->to, kCopyBytes, true, copy->where);
    if (copy->bytes != 0) std::memcpy(copy->to, copy->from, copy->bytes);
    std::memset(copy->to + copy->bytes, 0, kCopyBytes - copy->bytes);
  }
  copies.erase(copies.begin(), late);
}

void Block::fail(const std::string& what, const std::source_location& where) const {
  throw Error(concat(here_is(thread()), ", ", place(where), ": ", what), ErrorKind::internal);
}

std::string Block::name_of_thread(std::uint32_t t) const {
  const Extent3& extent = here.block_extent;
  return concat("thread (", t % extent.x, ", ", t / extent.x % extent.y, ", ", t / extent.x / extent.y, ")");
}

std::string Block::here_is(std::uint32_t t) const {
  return concat(grid_->kernel, ", block (", here.block.x, ", ", here.block.y, ", ", here.block.z, "), ",
                name_of_thread(t));
}

}  // namespace keel::emulation
