#pragma once
// Messages between the ranks of a transport, with contents that tell whether they are the right ones.

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "keel/dist/comm/transport.h"

namespace keel::testing {

using Bytes = std::vector<unsigned char>;

inline Bytes numbered(std::size_t bytes, std::size_t first = 0) {
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>((first + i) * 7 % 251);
  return data;
}

inline void finish(Transport& transport, Message& message) {
  while (!message.has_finished()) transport.idle(std::chrono::milliseconds(1));
}

// Each rank sends to the next one, around the ring.
inline void pass_on(Transport& transport, std::uint64_t tag, std::size_t bytes) {
  const int n = transport.size();
  const int next = (transport.rank() + 1) % n, previous = (transport.rank() + n - 1) % n;
  const Bytes out = numbered(bytes, static_cast<std::size_t>(transport.rank()));
  Bytes in(bytes);
  const auto receive = transport.receive(previous, tag, in.data(), bytes);
  const auto send = transport.send(next, tag, out.data(), bytes);
  finish(transport, *receive);
  finish(transport, *send);
  EXPECT_TRUE(in == numbered(bytes, static_cast<std::size_t>(previous))) << bytes << " bytes";
}

}  // namespace keel::testing
