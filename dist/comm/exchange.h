#pragma once
// Small values and texts among the ranks of a group, on the processor. Every rank calls each function, which blocks,
// and is an attempt (Communicator::attempt()); a Gathering goes on while the rank does something else.

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

// The bytes of all ranks, in their order; as many on each rank.
class Gathering {
 public:
  Gathering(Communicator& communicator, const std::vector<std::byte>& mine);
  std::vector<std::vector<std::byte>> wait();  // once

 private:
  Tensor all_;  // u8
  std::size_t ranks_, each_;
  Work work_;
};

inline std::vector<std::vector<std::byte>> gather_bytes(Communicator& communicator,
                                                        const std::vector<std::byte>& mine) {
  std::vector<std::vector<std::byte>> all;
  communicator.attempt([&] { all = Gathering(communicator, mine).wait(); });
  return all;
}

// The values of all ranks, in their order.
template <class T>
requires std::is_trivially_copyable_v<T>
class GatheringOf {
 public:
  GatheringOf(Communicator& communicator, const T& mine) : bytes_(communicator, bytes_of(mine)) {}
  std::vector<T> wait() {
    std::vector<T> values;
    for (const std::vector<std::byte>& theirs : bytes_.wait())
      std::memcpy(&values.emplace_back(), theirs.data(), sizeof(T));
    return values;
  }

 private:
  static std::vector<std::byte> bytes_of(const T& value) {
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }

  Gathering bytes_;
};

template <class T>
std::vector<T> gather_values(Communicator& communicator, const T& mine) {
  std::vector<T> all;
  communicator.attempt([&] { all = GatheringOf<T>(communicator, mine).wait(); });
  return all;
}

// The texts of all ranks, in their order, of any lengths.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine);
// The root's text.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root = 0);

}  // namespace keel
