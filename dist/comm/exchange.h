#pragma once
// Small values and texts among the ranks of a group, on the processor. Each function is called by every rank, and
// blocks.

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

// The bytes of all ranks, in their order; as many on each rank.
std::vector<std::vector<std::byte>> gather_bytes(Communicator& communicator, std::vector<std::byte> mine);

// The values of all ranks, in their order.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather_values(Communicator& communicator, const T& mine) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &mine, sizeof(T));
  std::vector<T> values;
  for (const std::vector<std::byte>& theirs : gather_bytes(communicator, std::move(bytes)))
    std::memcpy(&values.emplace_back(), theirs.data(), sizeof(T));
  return values;
}

// The texts of all ranks, in their order, of any lengths.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine);
// The root's text.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root = 0);

}  // namespace keel
