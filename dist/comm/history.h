#pragma once
// What a rank has asked for so far, in a few bytes that ranks compare now and then.

#include "keel/dist/comm/signature.h"

namespace keel {

class CollectiveHistory {
 public:
  // Bytes without pointers.
  struct Told {
    Signature now;
    std::uint64_t digest = 0, balance = 0;  // the latter of all_to_all_v: 0 over all ranks
  };
  // Adds a collective; returns what this rank tells of it and of those before.
  Told add(const Signature& now);

 private:
  std::uint64_t digest_ = 0xcbf29ce484222325, balance_ = 0;
};

// One line that tells how ranks differ in the collective at hand, `what`, or in one before; empty where they do not.
// `told` is by rank.
std::string difference(const std::vector<CollectiveHistory::Told>& told, const std::string& what);

}  // namespace keel
