#pragma once
// Frames over the connection between two ranks.

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/comm/tcp_socket.h"

namespace keel {

struct TcpHeader {
  enum Kind : std::uint32_t { message = 0x6d65656b, failed, left, goodbye };  // the first is no usual number

  std::uint32_t kind = message, unused = 0;
  std::uint64_t group = 0, tag = 0;  // `left`, `goodbye`: tag 1 is "abruptly"
  std::uint64_t bytes = 0;           // that follow
};

// A frame on its way out.
struct TcpOutgoing {
  TcpHeader header = {};
  const std::byte* data = nullptr;  // not touched once it is finished
  std::size_t sent = 0;             // the header included
  std::vector<std::byte> own = {};  // holds the data where nobody else does
  std::shared_ptr<const void> owner = {};

  std::size_t total() const { return sizeof(TcpHeader) + header.bytes; }
  bool is_finished() const { return sent == total(); }
};

// Where the bytes of a message that arrives go.
struct TcpIncoming {
  std::byte* memory = nullptr;  // null: nowhere
  std::size_t bytes = 0, received = 0;
  bool has_begun = false;
  // Memory of its own, of a message that nobody has asked for yet. It grows with what arrives, so that a number in a
  // header costs nothing.
  bool has_own = false;
  std::unique_ptr<std::byte[]> own = {};
  std::size_t own_bytes = 0;

  bool is_finished() const { return has_begun && received == bytes; }
  // How many bytes are missing for which there is memory; or that go nowhere.
  std::size_t make_room();
};

class TcpConnection {
 public:
  // The owner of the connection: it says where a message goes, and hears of everything else. Neither may throw.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual std::shared_ptr<TcpIncoming> place_for(int from, const TcpHeader& header) = 0;
    virtual void hear(int from, const TcpHeader& header, const std::string& text) = 0;
  };

  TcpConnection(int peer, Socket socket);

  int file() const { return socket_.file(); }
  bool is_open() const { return socket_.is_open(); }
  bool wants_to_send() const { return can_send_ && !out_.empty(); }

  void push(std::shared_ptr<TcpOutgoing> frame) { out_.push_back(std::move(frame)); }
  // Queues the frame before all that have not begun.
  void push_first(std::shared_ptr<TcpOutgoing> frame);
  // Lets go of the frame's memory, which its owner wants back.
  void give_up(const std::shared_ptr<TcpOutgoing>& frame);
  // Sends what the system takes at once.
  void flush();
  // Reads all that is there; returns whether anything was. Closes the socket at the connection's end, or where what
  // comes is no frame.
  bool read(Listener& listener);
  void close() { socket_.close(); }

 private:
  bool take(Listener& listener, const std::byte* data, std::size_t bytes);
  void begin(Listener& listener);
  void end(Listener& listener);

  int peer_;
  Socket socket_;
  bool can_send_ = true;
  std::deque<std::shared_ptr<TcpOutgoing>> out_;
  std::vector<std::byte> staged_;
  // The frame that arrives.
  TcpHeader header_ = {};
  std::size_t header_received_ = 0;
  std::shared_ptr<TcpIncoming> incoming_;  // once its header is there
};

}  // namespace keel
