#include "keel/runtime/emulation/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel::emulation {
namespace {

// How long a wait may find nothing to do before it is called a deadlock: other threads may still be enqueuing.
constexpr auto kPatience = std::chrono::seconds(20);

int devices_wished() {
  const char* wish = std::getenv("KEEL_EMULATED_DEVICES");
  return wish == nullptr ? 1 : std::clamp(std::atoi(wish), 1, 64);
}

}  // namespace

Machine& Machine::get() {
  static Machine machine;
  return machine;
}

Machine::Machine() { reset({}); }

void Machine::reset(const MachineOptions& options) {
  const std::lock_guard lock(mutex_);
  for (auto& [memory, block] : device_blocks_) free_block(memory, block);
  for (auto& [memory, block] : pinned_blocks_) std::free(const_cast<std::byte*>(memory));
  device_blocks_.clear();
  pinned_blocks_.clear();
  options_ = options;
  if (options_.devices == 0) options_.devices = devices_wished();
  draw_ = options_.drain_seed;
  const auto count = static_cast<std::size_t>(options_.devices);
  failures_.assign(count, {});
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

void Machine::enqueue(CUstream_st* stream, CUstream_st::Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    stream->queue.push_back(std::move(operation));
  }
  enqueued_.notify_all();
}

std::uint64_t Machine::enqueued(const CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  return stream->enqueued();
}

bool Machine::is_done(const CUstream_st* stream, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  return stream->done >= position;
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

std::string Machine::take_failure(int device) {
  const std::lock_guard lock(mutex_);
  return std::exchange(failures_[static_cast<std::size_t>(device)], {});
}

bool Machine::is_ready(const CUstream_st::Operation& operation) const {
  if (operation.needs != nullptr && operation.needs->done < operation.position) return false;
  return !operation.ready || operation.ready();
}

// The stream whose next operation the target's next operation waits for, in the end; null when that one cannot run.
CUstream_st* Machine::next_needed(CUstream_st* target) const {
  for (std::size_t depth = 0; depth <= streams_.size(); ++depth) {
    if (target->queue.empty()) return nullptr;
    const CUstream_st::Operation& head = target->queue.front();
    if (is_ready(head)) return target;
    if (head.needs == nullptr) return nullptr;
    target = head.needs;
  }
  return nullptr;  // events wait for each other in a circle
}

CUstream_st* Machine::next_drawn() {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_)
    if (!stream->queue.empty() && is_ready(stream->queue.front())) ready.push_back(stream.get());
  if (ready.empty()) return nullptr;
  draw_ = mix64(draw_ + 1);
  return ready[draw_ % ready.size()];
}

void Machine::drive(std::unique_lock<std::mutex>& lock, CUstream_st* target, std::uint64_t position) {
  while (target->done < position) {
    CUstream_st* next = options_.drain_seed == 0 ? next_needed(target) : nullptr;
    if (next == nullptr) next = next_drawn();
    if (next != nullptr) {
      perform(next);
      enqueued_.notify_all();  // another thread may wait for what has just happened
      continue;
    }
    if (enqueued_.wait_for(lock, kPatience) == std::cv_status::timeout)
      throw Error(concat("emulated:", target->device,
                         " waits for work that nothing can begin: an event or a collective ", "that never comes"),
                  ErrorKind::internal);
  }
}

// Runs under the lock: one operation of all devices at a time.
void Machine::perform(CUstream_st* stream) {
  CUstream_st::Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (operation.run) {
    open_memory(true);
    try {
      operation.run();
    } catch (const std::exception& error) {
      std::string& failure = failures_[static_cast<std::size_t>(stream->device)];
      if (failure.empty()) failure = error.what();
    }
    open_memory(false);
  }
  ++stream->done;
}

}  // namespace keel::emulation
