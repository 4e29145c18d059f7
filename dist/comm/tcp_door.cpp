#include "keel/dist/comm/tcp_door.h"

#include <poll.h>

#include <algorithm>

#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAtOnce = 64;  // guests that are let in before the others are listened to
// How often a full house looks whether a file has been closed elsewhere, and how long a guest may take at least.
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

bool transfer(const Socket& socket, std::byte* data, std::size_t bytes, bool is_send, Clock::time_point deadline) {
  while (bytes > 0) {
    const std::ptrdiff_t moved = is_send ? socket.send_some(data, bytes) : socket.receive_some(data, bytes);
    if (moved < 0) return false;
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    if (moved > 0) continue;
    if (Clock::now() >= deadline) return false;
    pollfd wait{socket.file(), static_cast<short>(is_send ? POLLOUT : POLLIN), 0};
    ::poll(&wait, 1, 10);
  }
  return true;
}

}  // namespace

bool write_all(const Socket& socket, const void* data, std::size_t bytes, Clock::time_point deadline) {
  return transfer(socket, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, true, deadline);
}

bool read_all(const Socket& socket, void* data, std::size_t bytes, Clock::time_point deadline) {
  return transfer(socket, static_cast<std::byte*>(data), bytes, false, deadline);
}

void refuse(const Socket& socket, const std::string& reason, TcpVerdict verdict) {
  const TcpAnswer answer{.verdict = verdict, .bytes = reason.size()};
  const Clock::time_point soon = Clock::now() + std::chrono::milliseconds(100);
  if (write_all(socket, &answer, sizeof(answer), soon)) write_all(socket, reason.data(), reason.size(), soon);
}

std::optional<TcpGuest> TcpDoor::next(Clock::time_point deadline, const std::vector<Socket>& seated) {
  while (Clock::now() < deadline) {
    wait(deadline, seated);
    if (is_called_) let_in();
    if (auto guest = listen_to_guests()) return guest;
    send_silent_ones_away();
    if (has_seat_moved_) return std::nullopt;
  }
  return std::nullopt;
}

void TcpDoor::wait(Clock::time_point deadline, const std::vector<Socket>& seated) {
  Clock::time_point until = deadline;
  if (!guests_.empty()) until = std::min(until, guests_.front().came + patience_);
  if (is_full_) until = std::min<Clock::time_point>(until, Clock::now() + kBetweenLooks);
  std::vector<pollfd> waits;
  for (const Socket& socket : seated) waits.push_back({socket.file(), POLLIN, 0});
  for (const TcpGuest& guest : guests_) waits.push_back({guest.socket.file(), POLLIN, 0});
  // A call that cannot be answered would end every wait at once.
  waits.push_back({is_full_ ? -1 : listener_->file(), POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  const bool moves = ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000))) > 0;
  const auto end_of_seated = waits.begin() + static_cast<std::ptrdiff_t>(seated.size());
  has_seat_moved_ = moves && std::any_of(waits.begin(), end_of_seated, [](const pollfd& w) { return w.revents != 0; });
  is_called_ = is_full_ || (moves && waits.back().revents != 0);
}

void TcpDoor::let_in() {
  for (int i = 0; i < kAtOnce; ++i) {
    TcpListener::Accepted accepted = listener_->accept();
    is_full_ = accepted.lacks_files;
    if (!accepted.socket.is_open()) return;
    guests_.push_back({std::move(accepted.socket), Clock::now()});
  }
}

std::optional<TcpGuest> TcpDoor::listen_to_guests() {
  for (auto at = guests_.begin(); at != guests_.end();) {
    const std::ptrdiff_t received = at->socket.receive_some(
        reinterpret_cast<std::byte*>(&at->introduction) + at->received, sizeof(TcpIntroduction) - at->received);
    if (received > 0) at->received += static_cast<std::size_t>(received);
    const TcpHello& hello = at->introduction.hello;
    const bool is_stray = at->received >= sizeof(TcpHello) && hello.magic != kTcpMagic;
    if (received < 0 || is_stray) {
      at = guests_.erase(at);
    } else if (at->received < sizeof(TcpIntroduction)) {
      ++at;
    } else if (hello.version != kTcpVersion || hello.token != token_) {
      refuse(at->socket, hello.version != kTcpVersion ? "rank 0 runs another version of keel"
                                                      : "rank 0 belongs to another run: its token differs");
      at = guests_.erase(at);
    } else {
      TcpGuest guest = std::move(*at);
      guests_.erase(at);
      return guest;
    }
  }
  return std::nullopt;
}

// All have just been listened to, so whoever is left has not said enough.
void TcpDoor::send_silent_ones_away() {
  if (is_full_ && !guests_.empty() && Clock::now() >= guests_.front().came + kBetweenLooks) {
    guests_.pop_front();
    is_full_ = false;
  }
  while (!guests_.empty() && Clock::now() >= guests_.front().came + patience_) guests_.pop_front();
}

}  // namespace keel
