#include "keel/runtime/emulation/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel::emulation {
namespace {

constexpr unsigned kQuestions = 16;      // of one stream, before asking makes its work happen
constexpr std::size_t kFailures = 1000;  // that are remembered

// A number that the environment may hold; 0 where it does not.
std::uint64_t wish(const char* name, std::uint64_t least, std::uint64_t most) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0) return 0;
  const std::string_view text = value;
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size() || number < least || number > most)
    throw Error(concat(name, " is '", text, "'; it must be a number from ", least, " to ", most));
  return number;
}

}  // namespace

Machine& Machine::get() {
  static Machine machine;
  return machine;
}

MachineOptions options_of_environment() {
  return {.drain_seed = wish("KEEL_EMULATED_DRAIN", 0, std::numeric_limits<std::uint64_t>::max()),
          .guard_memory = wish("KEEL_EMULATED_GUARD", 0, 1) != 0};
}

Machine::Machine() { reset(options_of_environment()); }

void Machine::reset(const MachineOptions& options) {
  const int wished = options.devices != 0 ? options.devices : static_cast<int>(wish("KEEL_EMULATED_DEVICES", 1, 64));
  const std::lock_guard lock(mutex_);
  for (auto& [memory, block] : device_blocks_) free_block(memory, block);
  for (auto& [memory, block] : pinned_blocks_) std::free(const_cast<std::byte*>(memory));
  device_blocks_.clear();
  pinned_blocks_.clear();
  options_ = options;
  options_.devices = std::max(1, wished);
  draw_ = options_.drain_seed;
  const auto count = static_cast<std::size_t>(options_.devices);
  failures_.clear();
  captures_.clear();
  lost_.clear();
  in_use_.assign(count, 0);
  streams_.clear();
  default_streams_.clear();
  for (int device = 0; device < options_.devices; ++device) {
    streams_.push_back(std::make_unique<CUstream_st>());
    streams_.back()->device = device;
    default_streams_.push_back(streams_.back().get());
  }
}

int Machine::devices() {
  const std::lock_guard lock(mutex_);
  return options_.devices;
}

// Under guard_memory a block has pages of its own, which are closed while no work of a device runs.
std::byte* Machine::new_block(std::size_t bytes) const {
  if (!options_.guard_memory) return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  void* memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void Machine::free_block(const std::byte* memory, const Block& block) const {
  auto* pointer = const_cast<std::byte*>(memory);
  if (options_.guard_memory) ::munmap(pointer, block.bytes);
  else std::free(pointer);
}

void Machine::open_memory(bool open) {
  if (!options_.guard_memory) return;
  for (const auto& [memory, block] : device_blocks_)
    ::mprotect(const_cast<std::byte*>(memory), block.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void* Machine::allocate(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t& used = in_use_[static_cast<std::size_t>(device)];
  if (bytes == 0 || used + bytes > options_.bytes) return nullptr;
  std::byte* memory = new_block(bytes);
  if (memory == nullptr) return nullptr;
  used += bytes;
  device_blocks_[memory] = {device, bytes};
  return memory;
}

bool Machine::release(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = device_blocks_.find(static_cast<const std::byte*>(memory));
  if (found == device_blocks_.end()) return false;
  in_use_[static_cast<std::size_t>(found->second.device)] -= found->second.bytes;
  free_block(found->first, found->second);
  device_blocks_.erase(found);
  return true;
}

void* Machine::allocate_pinned(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (memory != nullptr) pinned_blocks_[memory] = {-1, bytes};
  return memory;
}

bool Machine::release_pinned(void* memory) {
  const std::lock_guard lock(mutex_);
  if (pinned_blocks_.erase(static_cast<const std::byte*>(memory)) == 0) return false;
  std::free(memory);
  return true;
}

std::size_t Machine::bytes_in_use(int device) {
  const std::lock_guard lock(mutex_);
  return in_use_[static_cast<std::size_t>(device)];
}

const Machine::Block* Machine::block_of(const std::map<const std::byte*, Block>& blocks, const void* memory) const {
  const auto* address = static_cast<const std::byte*>(memory);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  --after;
  return address < after->first + after->second.bytes ? &after->second : nullptr;
}

int Machine::device_of(const void* memory) {
  const std::lock_guard lock(mutex_);
  const Block* block = block_of(device_blocks_, memory);
  return block == nullptr ? -1 : block->device;
}

bool Machine::is_pinned(const void* memory) {
  const std::lock_guard lock(mutex_);
  return block_of(pinned_blocks_, memory) != nullptr;
}

std::size_t Machine::bytes_behind(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto* address = static_cast<const std::byte*>(memory);
  for (const auto* blocks : {&device_blocks_, &pinned_blocks_})
    if (block_of(*blocks, memory) != nullptr) {
      const auto found = std::prev(blocks->upper_bound(address));
      return static_cast<std::size_t>(found->first + found->second.bytes - address);
    }
  return 0;
}

CUstream_st* Machine::create_stream(int device) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->device = device;
  return streams_.back().get();
}

// The stream stays in the list, empty: an event may still name it.
void Machine::destroy_stream(CUstream_st* stream) { wait_for(stream); }

CUstream_st* Machine::default_stream(int device) {
  const std::lock_guard lock(mutex_);
  return default_streams_[static_cast<std::size_t>(device)];
}

std::uint64_t Machine::enqueued(const CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  return stream->enqueued();
}

bool Machine::is_done(CUstream_st* stream, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  if (stream->done >= position) {
    stream->questions = 0;
    return true;
  }
  if (++stream->questions > kQuestions) step_towards(stream);
  return false;
}

void Machine::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++happenings_;
  }
  happened_.notify_all();
}

void Machine::wait_for(CUstream_st* stream) { wait_for(stream, enqueued(stream)); }

void Machine::wait_for(CUstream_st* stream, std::uint64_t position) {
  ++waits_;
  std::unique_lock lock(mutex_);
  drive(lock, stream, position);
}

void Machine::wait_for_device(int device) {
  ++waits_;
  std::unique_lock lock(mutex_);
  std::vector<std::pair<CUstream_st*, std::uint64_t>> targets;
  for (const auto& stream : streams_)
    if (stream->device == device) targets.emplace_back(stream.get(), stream->enqueued());
  for (const auto& [stream, position] : targets) drive(lock, stream, position);
}

void Machine::lose(int device) {
  const std::lock_guard lock(mutex_);
  lost_.insert(device);
}

bool Machine::is_lost(int device) {
  const std::lock_guard lock(mutex_);
  return lost_.contains(device);
}

unsigned Machine::draw_nccl_questions() {
  const std::lock_guard lock(mutex_);
  const bool draws = options_.drain_seed != 0 && options_.nccl_questions == 0;
  return draws ? static_cast<unsigned>(draw() % 4) : options_.nccl_questions;
}

void Machine::note_failure(int device, std::string what) {
  failures_.push_back({++failure_count_, device, std::move(what)});
  if (failures_.size() > kFailures) failures_.pop_front();
}

std::string Machine::failure_after(int device, std::uint64_t* seen) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t last = std::exchange(*seen, failure_count_);
  for (const Failure& failure : failures_)
    if (failure.device == device && failure.number > last) return failure.what;
  return {};
}

std::uint64_t Machine::failures() {
  const std::lock_guard lock(mutex_);
  return failure_count_;
}

bool Machine::is_ready(const CUstream_st::Operation& operation) const {
  if (operation.needs != nullptr && operation.needs->done < operation.position) return false;
  return operation.gate == nullptr || operation.gate->is_open();
}

// A stream whose next operation can run, and must before the target's next one; null when there is none yet.
CUstream_st* Machine::next_needed(CUstream_st* target, std::vector<CUstream_st*>& seen) const {
  if (target->queue.empty() || std::find(seen.begin(), seen.end(), target) != seen.end()) return nullptr;
  seen.push_back(target);
  const CUstream_st::Operation& head = target->queue.front();
  if (is_ready(head)) return target;
  if (head.gate == nullptr) return next_needed(head.needs, seen);
  for (CUstream_st* blocker : head.gate->blockers())
    if (CUstream_st* next = next_needed(blocker, seen)) return next;
  return nullptr;
}

std::uint64_t Machine::draw() { return draw_ = mix64(draw_ + 1); }

CUstream_st* Machine::next_drawn() {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_)
    if (!stream->queue.empty() && is_ready(stream->queue.front())) ready.push_back(stream.get());
  return ready.empty() ? nullptr : ready[draw() % ready.size()];
}

bool Machine::step_towards(CUstream_st* target) {
  std::vector<CUstream_st*> seen;
  CUstream_st* next = options_.drain_seed == 0 ? next_needed(target, seen) : next_drawn();
  if (next == nullptr) return false;
  perform(next);
  return true;
}

void Machine::drive(std::unique_lock<std::mutex>& lock, CUstream_st* target, std::uint64_t position) {
  while (target->done < position) {
    if (step_towards(target)) continue;
    const std::uint64_t before = happenings_;
    if (happened_.wait_for(lock, options_.patience) == std::cv_status::timeout && happenings_ == before)
      give_up(target);
  }
}

// Drops the operation that everything waits for, as a failure of its device, so that the process can go on.
void Machine::give_up(CUstream_st* target) {
  CUstream_st* stuck = target;
  for (std::size_t depth = 0; depth < streams_.size(); ++depth) {
    const CUstream_st::Operation& head = stuck->queue.front();
    std::vector<CUstream_st*> before;
    if (head.gate != nullptr) before = head.gate->blockers();
    else if (head.needs != nullptr) before = {head.needs};
    std::erase_if(before, [](const CUstream_st* stream) { return stream->queue.empty(); });
    if (before.empty()) break;
    stuck = before.front();
  }
  const CUstream_st::Operation dropped = std::move(stuck->queue.front());
  stuck->queue.pop_front();
  ++stuck->done;
  ++happenings_;
  const std::string what =
      concat("emulated:", stuck->device, " gave up after ", options_.patience.count(),
             " ms: ", dropped.gate == nullptr ? "an event is waited for that never comes" : dropped.gate->describe());
  for (const int device : std::set{target->device, stuck->device}) note_failure(device, what);
  happened_.notify_all();
}

// Runs under the lock: one operation of all devices at a time.
void Machine::perform(CUstream_st* stream) {
  const CUstream_st::Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (operation.run) {
    open_memory(true);
    try {
      operation.run();
    } catch (const std::exception& error) { note_failure(stream->device, error.what()); }
    open_memory(false);
  }
  ++stream->done;
  ++happenings_;
  happened_.notify_all();  // another thread may wait for what has just happened
}

}  // namespace keel::emulation
