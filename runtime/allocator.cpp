#include "keel/runtime/allocator.h"

#include <sys/mman.h>

#include <cstdlib>

#include "keel/runtime/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace keel {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Sizes are rounded to 1/8 of their magnitude, so that nearly equal requests share blocks.
std::size_t block_size(std::size_t bytes) {
  std::size_t step = kAlignment;
  while (step * 8 < bytes) step *= 2;
  return round_up(bytes, step);
}

// A cached block is rounded up and never freed, which would hide overruns and late uses from AddressSanitizer: it is
// told which bytes of the block may be touched.
void allow_access([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(block, block_size(bytes));
  __asan_unpoison_memory_region(block, bytes);
#endif
}

void allow_no_access([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(block, block_size(bytes));
#endif
}

}  // namespace

std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposeCount> names = {"parameter",  "gradient", "optimizer",
                                                                 "activation", "bucket",   "workspace"};
  return names[static_cast<std::size_t>(purpose)];
}

Allocator::~Allocator() { trim(); }

void Allocator::count(std::size_t bytes, Purpose purpose, bool added) {
  for (MemoryCount* counter : {&counters_.by_purpose[static_cast<std::size_t>(purpose)], &counters_.total}) {
    counter->current = added ? counter->current + bytes : counter->current - bytes;
    if (counter->current > counter->peak) counter->peak = counter->current;
  }
}

void* Allocator::allocate(std::size_t bytes, Purpose purpose) {
  if (bytes == 0) return nullptr;
  const std::size_t size = block_size(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = cached_.find(size); found != cached_.end() && !found->second.empty()) {
      void* memory = found->second.back();
      found->second.pop_back();
      count(bytes, purpose, true);
      allow_access(memory, bytes);
      return memory;
    }
  }
  const std::size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
  void* memory = std::aligned_alloc(alignment, round_up(size, alignment));
  if (memory == nullptr) {
    trim();
    memory = std::aligned_alloc(alignment, round_up(size, alignment));
  }
  if (memory == nullptr)
    throw Error(concat("out of memory: ", bytes, " bytes for ", name_of(purpose), " on the cpu; ",
                       report().total.current, " bytes are in use"),
                ErrorKind::io);
  if (alignment == kHugePage) ::madvise(memory, size, MADV_HUGEPAGE);
  const std::lock_guard lock(mutex_);
  counters_.reserved += size;
  count(bytes, purpose, true);
  allow_access(memory, bytes);
  return memory;
}

void Allocator::release(void* memory, std::size_t bytes, Purpose purpose) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  allow_no_access(memory, bytes);
  count(bytes, purpose, false);
  cached_[block_size(bytes)].push_back(memory);
}

MemoryReport Allocator::report() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (MemoryCount& counter : counters_.by_purpose) counter.peak = counter.current;
  counters_.total.peak = counters_.total.current;
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : cached_) {
    for (void* block : blocks) {
      std::free(block);
      counters_.reserved -= size;
    }
    blocks.clear();
  }
}

}  // namespace keel
