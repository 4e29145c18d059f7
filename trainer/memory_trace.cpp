#include "keel/trainer/memory_trace.h"

#include <map>
#include <string>
#include <unordered_map>

namespace keel {
namespace {

// The numbers of a rank's blocks: one for each time that memory is given to somebody.
class BlockNumbers {
 public:
  std::int64_t of(const MemoryChange& change) {
    if (change.block == 0) return 0;
    if (change.bytes >= 0) return alive_[change.block] = ++last_;
    const auto found = alive_.find(change.block);
    if (found == alive_.end()) return 0;  // it came before the window
    const std::int64_t number = found->second;
    alive_.erase(found);
    return number;
  }

 private:
  std::unordered_map<std::uint64_t, std::int64_t> alive_;  // by address
  std::int64_t last_ = 0;
};

}  // namespace

Json memory_trace(std::span<const MemoryChange> changes, int began, std::int64_t start, std::int64_t dropped) {
  Json purposes = Json::array();
  for (int i = 0; i < kPurposeCount; ++i) purposes.push_back(name_of(static_cast<Purpose>(i)));
  std::map<int, Json> by_rank;
  std::map<int, BlockNumbers> numbers;
  for (const MemoryChange& change : changes)
    by_rank.try_emplace(change.rank, Json::array())
        .first->second.push_back(Json::array(
            {change.time - start, change.bytes, static_cast<int>(change.purpose), numbers[change.rank].of(change)}));
  Json ranks = Json::array();
  for (auto& [rank, own] : by_rank) ranks.push_back({{"rank", rank}, {"changes", std::move(own)}});
  return {{"format", "keel memory"}, {"version", 1},   {"began", began},
          {"purposes", purposes},    {"ranks", ranks}, {"dropped", dropped}};
}

}  // namespace keel
