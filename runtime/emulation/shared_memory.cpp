#include "keel/runtime/emulation/shared_memory.h"

#include <algorithm>
#include <cstring>

#include "keel/runtime/emulation/shared.h"
#include "keel/runtime/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace keel::emulation {
namespace {

constexpr std::size_t kAlignment = 128;  // bytes; also the length of a guard
constexpr std::size_t kGranule = 2;      // bytes of a cell: the smallest element kept in shared memory
constexpr std::byte kGuard{0xa5};
constexpr std::byte kNan{0xff};  // every float of these bytes is a NaN
constexpr std::size_t kMostArrays = 32;
constexpr std::size_t kArena = SharedMemory::kStaticLimit + kDynamicSharedLimit + (2 * kMostArrays + 2) * kAlignment;

std::size_t round_up(std::size_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

bool ordered(const Access& before, const Access& now) {
  if (before.file == nullptr || before.thread == now.thread) return true;
  if (before.block_epoch < now.block_epoch) return true;
  return before.thread / 32 == now.thread / 32 && before.warp_epoch < now.warp_epoch;
}

}  // namespace

SharedMemory::SharedMemory() : bytes_(kArena + kAlignment), cells_(bytes_.size() / kGranule) {}

SharedMemory::~SharedMemory() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bytes_.data(), bytes_.size());
#endif
}

void SharedMemory::begin_block(std::size_t dynamic_bytes, bool check_races) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bytes_.data(), bytes_.size());
#endif
  arrays_.clear();
  used_ = static_bytes_ = 0;
  dynamic_bytes_ = dynamic_bytes;
  check_races_ = check_races;
  if (dynamic_bytes != 0) add_array(nullptr, dynamic_bytes);
}

std::byte* SharedMemory::array(const void* key, std::size_t bytes) {
  for (const Array& known : arrays_)
    if (known.key == key) return bytes_.data() + known.offset;
  if (key != nullptr) static_bytes_ += bytes;
  if (static_bytes_ > kStaticLimit || arrays_.size() == kMostArrays)
    throw Error(concat("static shared memory of ", static_bytes_, " bytes in ", arrays_.size() + 1,
                       " arrays; a block may have ", kStaticLimit, " bytes"),
                ErrorKind::internal);
  if (static_bytes_ + dynamic_bytes_ > kDynamicSharedLimit)
    throw Error(concat("shared memory of ", static_bytes_, " bytes in static arrays and ", dynamic_bytes_,
                       " dynamic ones; a block may have ", kDynamicSharedLimit),
                ErrorKind::internal);
  return add_array(key, bytes);
}

bool SharedMemory::holds(const std::byte* address, std::size_t bytes) const {
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    const std::byte* begin = bytes_.data() + array.offset;
    return address >= begin && address + bytes <= begin + array.bytes;
  });
}

std::byte* SharedMemory::add_array(const void* key, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
  if (used_ == 0) used_ = round_up(address) - address;
  std::byte* guard = bytes_.data() + used_;
  std::byte* memory = guard + kAlignment;
  const std::size_t padded = round_up(bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(guard, kAlignment);  // the guard behind the array before
#endif
  std::memset(guard, static_cast<int>(kGuard), kAlignment + padded + kAlignment);
  std::memset(memory, static_cast<int>(kNan), bytes);
  const std::size_t offset = used_ + kAlignment;
  if (check_races_)
    std::fill_n(cells_.begin() + static_cast<std::ptrdiff_t>(offset / kGranule), bytes / kGranule + 1, Cell{});
  arrays_.push_back({key, offset, bytes});
  used_ += kAlignment + padded;
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(guard, kAlignment);
  __asan_poison_memory_region(memory + bytes, padded - bytes + kAlignment);
#endif
  return memory;
}

void SharedMemory::check_guards() const {
#if !defined(__SANITIZE_ADDRESS__)
  for (const Array& array : arrays_) {
    const std::byte* memory = bytes_.data() + array.offset;
    const auto intact = [](const std::byte* from, const std::byte* to) {
      return std::all_of(from, to, [](std::byte b) { return b == kGuard; });
    };
    const std::byte* end = memory + array.bytes;
    if (!intact(memory - kAlignment, memory) || !intact(end, memory + round_up(array.bytes) + kAlignment))
      throw Error(concat("something wrote past a shared array of ", array.bytes, " bytes"), ErrorKind::internal);
  }
#endif
}

std::optional<Access> SharedMemory::touch(const std::byte* address, std::size_t bytes, bool write,
                                          const Access& access) {
  if (!check_races_) return {};
  const auto first = static_cast<std::size_t>(address - bytes_.data()) / kGranule;
  for (std::size_t i = first; i < first + std::max(bytes / kGranule, std::size_t{1}); ++i) {
    Cell& cell = cells_[i];
    if (!ordered(cell.writer, access)) return cell.writer;
    if (write) {
      for (const Access& reader : cell.readers)
        if (!ordered(reader, access)) return reader;
      cell.writer = access;
      cell.readers[0] = cell.readers[1] = {};
    } else {
      // Two readers of different threads are enough to find most writes that come too early.
      Access& slot = cell.readers[0].file == nullptr || cell.readers[0].thread == access.thread ? cell.readers[0]
                                                                                                : cell.readers[1];
      slot = access;
    }
  }
  return {};
}

}  // namespace keel::emulation
