#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "keel/dist/comm/tcp_program.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

constexpr std::uint64_t kGroup = 0, kLeftGroup = 1;

// Sends what fits at once, and looks at it, until all is through or the program has closed the connection.
void say(const Socket& to, TcpProgram& program, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::ptrdiff_t sent = to.send_some(bytes.data(), bytes.size());
    if (sent < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    program.look();
  }
}

}  // namespace

// Rank 1 sends the bytes, in two pieces, to rank 0, which waits for a small message and for a large one.
bool frames(std::string_view bytes) {
  std::array<int, 2> ends = {-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "there are sockets");
  Socket other(ends[1]);
  std::vector<Socket> sockets(2);
  sockets[1] = Socket(ends[0]);
  TcpProgram program(0, {std::move(sockets), {0, 0}});
  const auto turn = program.turn();
  program.join_family(kGroup, {0, 1});
  program.leave(kLeftGroup, {0, 1});
  std::vector<std::byte> small(8), large(17'000), late(8);
  const auto waited = {program.receive(1, kGroup, 1, small.data(), small.size()),
                       program.receive(1, kGroup, 2, large.data(), large.size())};
  const std::size_t cut = bytes.empty() ? 0 : static_cast<unsigned char>(bytes.back()) % (bytes.size() + 1);
  say(other, program, bytes.substr(0, cut));
  say(other, program, bytes.substr(cut));
  const auto unasked = program.receive(1, kGroup, 3, late.data(), late.size());
  other.close();
  const auto is_over = [&] { return !program.failure(kGroup).empty() || program.departure(kGroup, 1); };
  for (int looks = 0; looks < 100 && !is_over(); ++looks) program.look();
  require(is_over(), "the end of a connection is noticed");
  for (const auto& incoming : waited)
    require(incoming->received <= incoming->bytes, "no message is longer than it says");
  program.give_up_receive(1, kGroup, 3, unasked);
  program.departure(kLeftGroup, 1);
  return accepts([&] { program.throw_failure(kGroup); });
}

}  // namespace keel::fuzz
