#include "keel/dist/comm/history.h"

#include <array>
#include <cstring>
#include <utility>

namespace keel {
namespace {

constexpr std::uint64_t kPrime = 0x100000001b3;  // of FNV-1a

}  // namespace

CollectiveHistory::Told CollectiveHistory::add(const Signature& now) {
  Signature common = now;  // to all ranks
  if (now.is_by_pairs()) balance_ += std::exchange(common.digest, 0);
  std::array<std::uint64_t, sizeof common / sizeof(std::uint64_t)> words = {};
  std::memcpy(words.data(), &common, sizeof common);
  for (const std::uint64_t word : words) digest_ = (digest_ ^ word) * kPrime;
  return {now, digest_, balance_};
}

std::string difference(const std::vector<CollectiveHistory::Told>& told, const std::string& what) {
  std::vector<Signature> asked;
  std::uint64_t balance = 0;
  bool is_same = true;
  for (const CollectiveHistory::Told& each : told) {
    asked.push_back(each.now);
    is_same = is_same && each.digest == told[0].digest;
    balance += each.balance;
  }
  const std::string found = difference(asked);
  if (!found.empty() || (is_same && balance == 0)) return found;
  return concat("ranks asked for different collectives before ", what, "; check_every 1 names the first");
}

}  // namespace keel
