#pragma once
// What ranks tell each other before a collective moves anything: which one they are about to do.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

// 16 bytes on the wire.
struct Signature {
  std::uint32_t sequence = 0;  // collectives of this group before this one
  CollectiveKind kind = CollectiveKind::barrier;
  CombineOp op = CombineOp::sum;
  DType dtype = DType::u8;
  std::uint8_t algorithm = 0;           // its place in the list
  std::uint64_t count_and_subject = 0;  // elements; in the uppermost 16 bits the subject, or the root of a broadcast

  Signature() = default;
  Signature(std::uint32_t sequence, const Collective& collective, std::uint8_t algorithm);
  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 16);

// One line that tells how the ranks' collectives differ; empty where they are the same. `asked` is by rank.
std::string difference(const std::vector<Signature>& asked);

}  // namespace keel
