#include "keel/dist/comm/node_memory.h"

#include <thread>

#include "keel/runtime/error.h"

namespace keel {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

NodeMemory::NodeMemory(SharedAreas shared, int rank)
    : shared_(std::move(shared)), rank_(rank), missed_since_(shared_.areas.size()) {}

std::size_t NodeMemory::bytes_of_area(int ranks) {
  return sizeof(NodeArea) + NodeArea::kSlots * (static_cast<std::size_t>(ranks) + 2) * sizeof(std::int64_t);
}

std::span<std::int64_t> NodeMemory::table(int rank, std::uint64_t slot) const {
  const std::size_t length = static_cast<std::size_t>(size()) + 2;
  auto* const tables =
      reinterpret_cast<std::int64_t*>(shared_.areas[static_cast<std::size_t>(rank)] + sizeof(NodeArea));
  return {tables + slot * length, length};
}

bool NodeMemory::all_have(Counter counter, std::uint64_t value) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank_ || (area(r).*counter).load(std::memory_order_acquire) >= value) continue;
    const std::uint32_t left = area(r).left.load(std::memory_order_acquire);
    if (left == NodeArea::here) return false;
    // It may have come so far before it left.
    if ((area(r).*counter).load(std::memory_order_acquire) >= value) continue;
    if (left == NodeArea::abruptly) {
      Clock::time_point& since = missed_since_[static_cast<std::size_t>(r)];
      if (since == Clock::time_point{}) since = Clock::now();
      if (Clock::now() - since < kTimeToTell) return false;
    }
    throw Error(concat("rank ", r, " has left while rank ", rank_, " waits for it"), ErrorKind::peer);
  }
  return true;
}

std::vector<int> NodeMemory::those_behind(Counter counter, std::uint64_t value) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if (r != rank_ && (area(r).*counter).load(std::memory_order_acquire) < value) ranks.push_back(r);
  return ranks;
}

bool NodeMemory::is_last(Counter counter, std::uint64_t value) const {
  for (int r = 0; r < size(); ++r)
    if (r != rank_ && (area(r).*counter).load(std::memory_order_seq_cst) < value) return false;
  return true;
}

std::uint32_t NodeMemory::add_window(SharedAreas areas, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  windows_.push_back({++last_window_, bytes, std::move(areas)});
  return last_window_;
}

void NodeMemory::remove_window(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(windows_, [&](const Window& window) { return window.number == number; });
}

NodeArea::Place NodeMemory::place_of(const std::byte* memory) const {
  if (has_one_address_space()) return {NodeArea::Place::kAddress, reinterpret_cast<std::uintptr_t>(memory)};
  const std::lock_guard lock(mutex_);
  for (const Window& window : windows_) {
    const std::byte* const begin = window.shared.areas[static_cast<std::size_t>(rank_)];
    if (begin <= memory && memory < begin + window.bytes)
      return {window.number, static_cast<std::uint64_t>(memory - begin)};
  }
  return {NodeArea::Place::kPrivate, 0};
}

std::byte* NodeMemory::find(int rank, const NodeArea::Place& place) const {
  if (place.window == NodeArea::Place::kAddress) return reinterpret_cast<std::byte*>(place.offset);
  const std::lock_guard lock(mutex_);
  for (const Window& window : windows_)
    if (window.number == place.window) return window.shared.areas[static_cast<std::size_t>(rank)] + place.offset;
  return nullptr;
}

bool NodeMemory::any_has_closed() const {
  for (int r = 0; r < size(); ++r)
    if (area(r).closed.load(std::memory_order_acquire) != 0) return true;
  return false;
}

// A visitor comes in before it looks whether the door is closed, and whoever closes it looks for visitors afterwards.
bool NodeMemory::visit() {
  for (int r = 0; r < size(); ++r)
    if (r != rank_) ++area(r).visitors;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_ || area(r).closed == 0) continue;
    end_visit();
    return false;
  }
  return true;
}

void NodeMemory::end_visit() {
  for (int r = 0; r < size(); ++r)
    if (r != rank_) --area(r).visitors;
}

void NodeMemory::close() {
  if (own().closed.exchange(1) != 0) return;
  const Clock::time_point began = Clock::now();
  while (own().visitors != 0 && (has_one_address_space() || Clock::now() - began < kTimeToTell))
    std::this_thread::yield();
}

void NodeMemory::leave(bool abruptly) {
  own().left.store(abruptly ? NodeArea::abruptly : NodeArea::in_order, std::memory_order_release);
}

}  // namespace keel
