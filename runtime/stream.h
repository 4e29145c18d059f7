#pragma once
// Queues of device work, and points in them that others can wait for.

#include <memory>
#include <optional>

#include "keel/runtime/language.h"

namespace keel {

class DeviceApi;

// A point in a stream. Copies share it; an empty one has passed.
class Event {
 public:
  Event() = default;
  // Throws where it never will, as the device has failed.
  bool has_passed() const;
  // Blocks the calling thread. Throws what the device's work before it did wrong.
  void synchronize() const;

 private:
  friend class Stream;
  struct State;
  std::shared_ptr<State> state_;
};

// Work in the order in which it was asked for. Copies share it; an empty one is the processor's, where everything has
// happened when its call returns.
class Stream {
 public:
  Stream() = default;
  static Stream create(std::shared_ptr<DeviceApi> api, bool urgent = false);

  Event record() const;
  // What is asked of this stream from now on happens after the event. On the processor's: blocks.
  void wait(const Event& event) const;
  // Blocks the calling thread until all work is done. Throws what the device's work did wrong.
  void synchronize() const;
  // The same for destructors: what the work did wrong is left to others.
  void settle() const noexcept;
  void* native() const;  // cudaStream_t; null on the processor
  bool is_asynchronous() const { return state_ != nullptr; }
  friend bool operator==(const Stream& a, const Stream& b) { return a.state_ == b.state_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A stream that works on something, and the point in it where it does no more, once that is known.
struct StreamUse {
  Stream stream;
  std::optional<Event> end = {};
  Event ended() const { return end ? *end : stream.record(); }
};

}  // namespace keel
