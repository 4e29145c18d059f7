#pragma once
// What ranks tell each other before a collective moves anything: which one they are about to do.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

// 24 bytes on the wire.
struct Signature {
  std::uint32_t sequence = 0;  // collectives of this group before this one
  CollectiveKind kind = CollectiveKind::barrier;
  CombineOp op = CombineOp::sum;
  DType dtype = DType::u8;
  std::uint8_t algorithm = 0;           // its place in the list
  std::uint64_t count_and_subject = 0;  // elements; in the uppermost 16 bits the subject, or the root
  // A digest of the counts by rank, 0 without. Of an all_to_all_v, which has no count of its own, it is the sum over
  // all peers of what this rank sends less what it receives, each times a factor of sender and receiver: over all ranks
  // these are 0 where each receives what it is sent.
  std::uint64_t digest = 0;

  Signature() = default;
  Signature(std::uint32_t sequence, const Collective& collective, std::uint8_t algorithm, int rank);
  // Whether it is that of an all_to_all_v.
  bool is_by_pairs() const;
  // Whether ranks that sign so may ask for one collective; those of an all_to_all_v do where all balance.
  bool goes_with(const Signature& other) const;
  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 24);

// Whether the ranks ask for one collective; asked(r) is the signature of rank r.
template <class Asked>
bool is_one_collective(int ranks, const Asked& asked) {
  std::uint64_t balance = 0;
  for (int r = 0; r < ranks; ++r) {
    if (!asked(r).goes_with(asked(0))) return false;
    balance += asked(r).digest;
  }
  return balance == 0 || !asked(0).is_by_pairs();
}

// One line that tells how the ranks' collectives differ; empty where they are the same. `asked` is by rank.
std::string difference(const std::vector<Signature>& asked);

}  // namespace keel
