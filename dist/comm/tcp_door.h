#pragma once
// The first words between ranks that TCP is to connect, and who of those that come is let in.

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/dist/comm/tcp_socket.h"

namespace keel {

inline constexpr std::uint32_t kTcpMagic = 0x6c65656b;  // "keel"
inline constexpr std::uint16_t kTcpVersion = 1;

// What a connection begins with.
struct TcpHello {
  std::uint32_t magic = kTcpMagic;
  std::uint16_t version = kTcpVersion, unused = 0;
  std::uint64_t token = 0;
};
struct TcpIntroduction {
  TcpHello hello = {};
  std::int32_t rank = 0, size = 0, port = 0, unused = 0;  // port: where the rank listens
  std::uint64_t host = 0;
};
static_assert(sizeof(TcpHello) == 16 && sizeof(TcpIntroduction) == 40);

// What rank 0 answers: a seat for each rank, or why there is none.
enum class TcpVerdict : std::uint32_t { welcome, wrong_input, others_failed };
struct TcpAnswer {
  std::uint32_t magic = kTcpMagic;
  TcpVerdict verdict = TcpVerdict::welcome;
  std::uint64_t bytes = 0;
};

// Whether all bytes could be moved by then; false, too, at the end of a connection.
bool write_all(const Socket& socket, const void* data, std::size_t bytes,
               std::chrono::steady_clock::time_point deadline);
bool read_all(const Socket& socket, void* data, std::size_t bytes, std::chrono::steady_clock::time_point deadline);

// Answers with a reason, and waits a tenth of a second at most for it to be taken.
void refuse(const Socket& socket, const std::string& reason, TcpVerdict verdict = TcpVerdict::wrong_input);

struct TcpGuest {
  Socket socket;
  std::chrono::steady_clock::time_point came = {};
  TcpIntroduction introduction = {};
  std::size_t received = 0;  // bytes of it
};

// Lets in who says the right things. Strays are sent away. One that does not introduce itself within `patience` goes,
// and the oldest of them goes at once where the process can open no more files, so that none keeps a rank out.
class TcpDoor {
 public:
  TcpDoor(std::shared_ptr<const TcpListener> listener, std::uint64_t token, std::chrono::milliseconds patience)
      : listener_(std::move(listener)), token_(token), patience_(patience) {}

  // The next guest; none at the deadline. `seated` are those let in: returns early when one of them moves.
  std::optional<TcpGuest> next(std::chrono::steady_clock::time_point deadline, const std::vector<Socket>& seated);

  // Whether somebody waits who cannot be let in, as the process has all files open that it may open.
  bool is_full() const { return is_full_; }

 private:
  using Clock = std::chrono::steady_clock;

  void wait(Clock::time_point deadline, const std::vector<Socket>& seated);
  void let_in();
  std::optional<TcpGuest> listen_to_guests();
  void send_silent_ones_away();

  std::shared_ptr<const TcpListener> listener_;
  std::uint64_t token_;
  std::chrono::milliseconds patience_;
  std::list<TcpGuest> guests_;  // who have not introduced themselves, in the order of coming
  bool is_full_ = false;
  bool is_called_ = false;  // by a new guest
  bool has_seat_moved_ = false;
};

}  // namespace keel
