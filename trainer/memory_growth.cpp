#include "keel/trainer/memory_growth.h"

#include <algorithm>

#include "keel/runtime/error.h"
#include "keel/runtime/memory_limit.h"

namespace keel {
namespace {

// How much must have been added to `first` to be told.
std::int64_t worth_telling(std::int64_t first, bool is_process) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  return is_process ? std::max(first / 20, 32 * kMebibyte) : std::max(first / 100, kMebibyte);
}

bool has_grown(const std::vector<std::int64_t>& bytes, bool is_process) {
  return std::ssize(bytes) == MemoryGrowth::kWindows + 1 &&
         std::ranges::adjacent_find(bytes, [](auto before, auto after) { return after <= before; }) == bytes.end() &&
         bytes.back() - bytes.front() >= worth_telling(bytes.front(), is_process);
}

}  // namespace

void MemoryGrowth::count(const MemoryReport& memory) {
  for (std::size_t i = 0; i < least_.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(memory.by_purpose[i].current);
    least_[i] = steps_ % window_ == 0 ? bytes : std::min(least_[i], bytes);
  }
}

std::string MemoryGrowth::compare(std::int64_t own_bytes) {
  std::string text;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const bool is_process = i == kPurposeCount;
    std::vector<std::int64_t>& bytes = before_[i];
    bytes.push_back(is_process ? own_bytes : least_[i]);
    if (std::ssize(bytes) > kWindows + 1) bytes.erase(bytes.begin());
    // What keel counts is part of the process, and says more.
    if (was_told_[i] || !has_grown(bytes, is_process) || (is_process && !text.empty())) continue;
    was_told_[i] = true;
    const auto size = [](std::int64_t each) { return binary_size(static_cast<double>(each)); };
    text += concat(text.empty() ? "memory grows: " : "; ",
                   is_process ? std::string("that of the process") : concat("what is kept as ", name_of(Purpose(i))),
                   " from ", size(bytes.front()), " to ", size(bytes.back()), " in ", kWindows * window_, " steps");
  }
  if (text.empty()) return text;
  return concat(text,
                ". Something of each step is kept, such as a loss or a batch in a member of the task or of a "
                "callback (log.memory_growth)");
}

}  // namespace keel
