#include "keel/runtime/processor_api.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "keel/runtime/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace keel {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// From here on at whole pages, so that files may take them without a copy.
constexpr std::size_t kLarge = std::size_t{64} << 10, kPage = 4096;

std::string_view text_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::embedding_id: return "embedding: id";
    case FaultKind::gather_index: return "gather: index";
    case FaultKind::select_index: return "index_select: index";
    case FaultKind::add_index: return "index_add: index";
    case FaultKind::target: return "cross_entropy: target";
    case FaultKind::payload_place: return "decode_add: place";
    case FaultKind::rotary_position: return "rotary: position";
  }
  return "index";
}

}  // namespace

void* ProcessorApi::allocate(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : bytes >= kLarge ? kPage : kAlignment;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory != nullptr && alignment == kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void ProcessorApi::release(void* memory) noexcept { std::free(memory); }

void ProcessorApi::allow_access([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes,
                                [[maybe_unused]] std::size_t block_bytes, NativeStream) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(block, block_bytes);
  __asan_unpoison_memory_region(block, bytes);
#endif
}

void ProcessorApi::copy(void* to, const void* from, std::size_t bytes, NativeStream) { std::memcpy(to, from, bytes); }

void ProcessorApi::set_bytes(void* memory, int value, std::size_t bytes, NativeStream) {
  std::memset(memory, value, bytes);
}

std::shared_ptr<DeviceApi> processor_api() {
  static const auto api = std::make_shared<ProcessorApi>();
  return api;
}

void throw_fault(DeviceApi& api) {
  Fault* fault = api.fault();
  if (fault == nullptr) return;
  // Another thread may look at the same time, and kernels of other streams may run.
  const std::atomic_ref<unsigned> raised(fault->raised);
  if (raised.load() != Fault::kWhole) return;
  const Fault found = *fault;
  unsigned expected = Fault::kWhole;
  if (!raised.compare_exchange_strong(expected, Fault::kNone)) return;
  throw Error(concat(text_of(found.kind), ' ', found.value, " at position ", found.position, " is outside [0, ",
                     found.limit, ")"));
}

}  // namespace keel
