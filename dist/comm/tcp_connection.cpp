#include "keel/dist/comm/tcp_connection.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace keel {
namespace {

constexpr std::size_t kStaged = 64 << 10;
// What is missing of a message goes straight to its place from this size on.
constexpr std::size_t kReadInPlace = 16 << 10;
// The largest frame that is no message of a collective; such frames carry the reasons of failures.
constexpr std::size_t kLongestText = 64 << 10;
constexpr int kFramesAtOnce = 16;
// Memory for a message that nobody has asked for begins with so many bytes.
constexpr std::size_t kOwnAtFirst = 1 << 20;
// Reads from one connection before another one has its turn.
constexpr int kRounds = 64;

}  // namespace

std::size_t TcpIncoming::make_room() {
  if (has_own && received == own_bytes && received < bytes) {
    const std::size_t larger = std::min(bytes, std::max(kOwnAtFirst, 4 * own_bytes));
    std::unique_ptr<std::byte[]> grown(new std::byte[larger]);
    std::copy_n(own.get(), received, grown.get());
    own = std::move(grown);
    own_bytes = larger;
    memory = own.get();
  }
  return (has_own ? own_bytes : bytes) - received;
}

TcpConnection::TcpConnection(int peer, Socket socket) : peer_(peer), socket_(std::move(socket)) {
  if (socket_.is_open()) staged_.resize(kStaged);
}

void TcpConnection::push_first(std::shared_ptr<TcpOutgoing> frame) {
  const bool has_begun = !out_.empty() && out_.front()->sent > 0;
  out_.insert(out_.begin() + (has_begun ? 1 : 0), std::move(frame));
}

void TcpConnection::give_up(const std::shared_ptr<TcpOutgoing>& frame) {
  const auto at = std::find(out_.begin(), out_.end(), frame);
  if (at == out_.end()) return;
  if (frame->sent == 0) {
    out_.erase(at);
  } else if (!frame->owner) {
    frame->own.assign(frame->data, frame->data + frame->header.bytes);
    frame->data = frame->own.data();
  }
}

void TcpConnection::flush() {
  while (wants_to_send() && is_open()) {
    iovec parts[2 * kFramesAtOnce];
    std::size_t count = 0;
    for (std::size_t i = 0; i < out_.size() && i < kFramesAtOnce; ++i) {
      TcpOutgoing& frame = *out_[i];
      if (frame.sent < sizeof(TcpHeader))
        parts[count++] = {reinterpret_cast<std::byte*>(&frame.header) + frame.sent, sizeof(TcpHeader) - frame.sent};
      const std::size_t done = frame.sent - std::min(frame.sent, sizeof(TcpHeader));
      if (done < frame.header.bytes)
        parts[count++] = {const_cast<std::byte*>(frame.data) + done, frame.header.bytes - done};
    }
    const std::ptrdiff_t sent = socket_.send_some(std::span(parts, count));
    if (sent < 0) can_send_ = false;  // what the other rank said before it went is still to be read
    if (sent <= 0) return;
    for (auto left = static_cast<std::size_t>(sent); left > 0;) {
      const std::size_t part = std::min(left, out_.front()->total() - out_.front()->sent);
      out_.front()->sent += part;
      left -= part;
      if (!out_.front()->is_finished()) break;
      out_.front()->owner.reset();
      out_.pop_front();
    }
  }
}

bool TcpConnection::read(Listener& listener) {
  bool any = false;
  try {
    for (int round = 0; round < kRounds && is_open(); ++round) {
      const std::size_t missing = incoming_ ? incoming_->make_room() : 0;
      const bool in_place = missing >= kReadInPlace && incoming_->memory != nullptr;
      const std::ptrdiff_t received = in_place ? socket_.receive_some(incoming_->memory + incoming_->received, missing)
                                               : socket_.receive_some(staged_.data(), staged_.size());
      if (received == 0) return any;
      any = true;
      if (received < 0) {
        close();
      } else if (!in_place) {
        if (!take(listener, staged_.data(), static_cast<std::size_t>(received))) close();
        if (received < static_cast<std::ptrdiff_t>(staged_.size())) return true;  // that was all
      } else {
        incoming_->received += static_cast<std::size_t>(received);
        if (incoming_->received == incoming_->bytes) end(listener);
      }
    }
  } catch (const std::bad_alloc&) { close(); }
  return any;
}

bool TcpConnection::take(Listener& listener, const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    std::size_t part = 0;
    if (!incoming_) {
      part = std::min(bytes, sizeof(TcpHeader) - header_received_);
      std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_received_, data, part);
      header_received_ += part;
      if (header_received_ == sizeof(TcpHeader)) {
        const bool is_known = header_.kind >= TcpHeader::message && header_.kind <= TcpHeader::goodbye;
        if (!is_known || (header_.kind != TcpHeader::message && header_.bytes > kLongestText)) return false;
        begin(listener);
      }
    } else {
      part = std::min(bytes, incoming_->make_room());
      if (incoming_->memory != nullptr) std::memcpy(incoming_->memory + incoming_->received, data, part);
      incoming_->received += part;
    }
    data += part;
    bytes -= part;
    if (incoming_ && incoming_->received == incoming_->bytes) end(listener);
  }
  return true;
}

void TcpConnection::begin(Listener& listener) {
  if (header_.kind == TcpHeader::message) {
    incoming_ = listener.place_for(peer_, header_);
  } else {
    incoming_ = std::make_shared<TcpIncoming>();
    incoming_->has_own = true;
  }
  incoming_->bytes = header_.bytes;
  incoming_->has_begun = true;
}

void TcpConnection::end(Listener& listener) {
  const std::shared_ptr<TcpIncoming> ended = std::move(incoming_);
  incoming_.reset();
  header_received_ = 0;
  std::string text;
  if (header_.kind != TcpHeader::message) text.assign(reinterpret_cast<const char*>(ended->own.get()), ended->bytes);
  listener.hear(peer_, header_, text);
}

}  // namespace keel
