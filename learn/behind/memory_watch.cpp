#include "learn/behind/memory_watch.h"

#include <algorithm>

namespace learn {
namespace {

constexpr std::int64_t kSector = 32;  // bytes that a GPU's memory moves together
constexpr std::int64_t kBanks = 32;   // of shared memory: word i of 4 bytes lies in bank i % 32
constexpr double kSlack = 1.5;

std::string file_of(const std::source_location& where) {
  const std::string_view path = where.file_name();
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace

void MemoryWatch::Accesses::note(const Thread& thread, std::int64_t address) {
  addresses[{thread.first, thread.second / 32, counts[thread]++}].insert(address);
}

void MemoryWatch::note_global(const GlobalArray& array, const Index& index, bool write, std::uint32_t block,
                              std::uint32_t thread) {
  const auto bytes = static_cast<std::int64_t>(array.element_bytes());
  Accesses& here =
      global_[{file_of(index.where), array.name(), index.where.line(), index.where.column(), write}];
  here.bytes = bytes;
  here.note({block, thread}, index.value * bytes);
  if (!write) ++reads_[{block, thread}];
}

void MemoryWatch::note_shared(const void* address, const char* name, const std::source_location& where,
                              std::uint32_t block, std::uint32_t thread) {
  shared_[{file_of(where), name, where.line(), where.column(), false}].note(
      {block, thread}, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address)));
}

void MemoryWatch::expect_coalesced(std::string_view why) const {
  for (const auto& [place, accesses] : global_) {
    std::int64_t touched = 0, fewest = 0;
    for (const auto& [turn, addresses] : accesses.addresses) {
      std::set<std::int64_t> sectors;
      for (const std::int64_t address : addresses) sectors.insert(address / kSector);
      touched += static_cast<std::int64_t>(sectors.size());
      fewest += (static_cast<std::int64_t>(addresses.size()) * accesses.bytes + kSector - 1) / kSector;
    }
    const auto turns = static_cast<std::int64_t>(accesses.addresses.size());
    if (static_cast<double>(touched) > kSlack * static_cast<double>(fewest))
      wrong(
          "{}:{}: each time that the 32 threads of a warp {} `{}` here, they touch {} sectors of 32 bytes, "
          "where {} "
          "would hold the same numbers side by side. Memory moves whole sectors.\n{}",
          place.file, place.line, place.write ? "write" : "read", place.name, touched / turns, fewest / turns,
          why);
  }
}

void MemoryWatch::expect_no_bank_conflicts(std::string_view why) const {
  for (const auto& [place, accesses] : shared_)
    for (const auto& [turn, addresses] : accesses.addresses) {
      std::map<std::int64_t, std::set<std::int64_t>> words;  // of each bank
      for (const std::int64_t address : addresses) words[address / 4 % kBanks].insert(address / 4);
      std::size_t most = 0;
      for (const auto& [bank, of] : words) most = std::max(most, of.size());
      if (most > 1)
        wrong(
            "{}:{}: {} threads of a warp want different words of `{}` that lie in the same bank of shared "
            "memory. A "
            "bank gives one word at a time, so this takes {} times as long.\n{}",
            place.file, place.line, most, place.name, most, why);
    }
}

std::int64_t MemoryWatch::most_reads_of_a_thread() const {
  std::int64_t most = 0;
  for (const auto& [thread, reads] : reads_) most = std::max(most, reads);
  return most;
}

}  // namespace learn
