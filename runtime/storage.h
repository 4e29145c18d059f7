#pragma once
// The memory behind tensors: owned, versioned, and able to go away and come back.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "keel/runtime/context.h"

namespace keel {

// Where the numbers of a storage lie while its memory is away: in a file, or in another memory.
class Elsewhere {
 public:
  // Takes bytes piece by piece, from the first to the last; each is there until it returns.
  using Reader = std::function<void(std::span<const std::byte> piece)>;

  virtual ~Elsewhere() = default;
  virtual bool has_numbers() const = 0;
  // Hands over a range of bytes without bringing back the memory.
  virtual void read(std::int64_t begin, std::int64_t bytes, const Reader& reader) = 0;
};

// Memory of one device, shared by all views of it. Not copyable; held by std::shared_ptr.
//
// A storage may drop its memory and get it back while its views stay valid. The touch hook runs
// whenever data() is asked for: it may restore the memory or wait for a transfer into it. Sharded
// parameters and overlapped gathers rest on this.
class Storage {
 public:
  using TouchHook = std::function<void(Storage&)>;
  using Deleter = std::function<void(void*)>;

  // Allocates `bytes` uninitialised bytes from the context, for its current stream.
  Storage(Context context, std::size_t bytes, Purpose purpose);
  // Adopts the caller's memory; `deleter` (may be empty) is called once at the end, when the work queued on its stream
  // and those of used_by() is done. Memory reports hold it if `counted`.
  Storage(Context context, void* memory, std::size_t bytes, Purpose purpose, Deleter deleter, bool counted = false);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // The first byte, after the touch hook ran. Throws when the memory was dropped and no hook brought it back.
  std::byte* data() {
    make_ready();
    if (memory_ == nullptr && bytes_ != 0) [[unlikely]]
      throw_dropped();
    return static_cast<std::byte*>(memory_);
  }

  // Runs the touch hook, as data() does: the memory is there when it returns.
  void make_ready() {
    if (touch_hook_) [[unlikely]]
      touch();
  }

  const Context& context() const { return context_; }
  std::size_t bytes() const { return bytes_; }
  Purpose purpose() const { return purpose_; }

  // Counts in-place writes. drop() and restore() leave it, since the numbers are the same again.
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

  // The stream that the memory belongs to. Work of another stream on it must be announced by used_by(), or the memory
  // may go to its next user before that work is done. Whoever gets it next waits for all that the other stream holds
  // when the memory is given up, or for `end` alone where that is said, after the last work on it was asked for.
  const Stream& stream() const { return stream_; }
  void used_by(const Stream& stream, const std::optional<Event>& end = {});

  bool resident() const { return memory_ != nullptr || bytes_ == 0; }
  // Whether somebody drops the memory at times, or watches who uses it.
  bool comes_and_goes() const { return was_dropped_ || touch_hook_; }
  void drop();     // gives the memory back; adopted memory cannot be dropped
  void restore();  // memory again, contents undefined until written
  // The hook may set another one, or none, while it runs.
  void set_touch_hook(TouchHook hook) { touch_hook_ = std::move(hook); }

  // For who reads numbers once; null: they are in memory, or data() brings them there.
  Elsewhere* elsewhere() const { return elsewhere_ != nullptr && elsewhere_->has_numbers() ? elsewhere_ : nullptr; }
  void set_elsewhere(Elsewhere* elsewhere) { elsewhere_ = elsewhere; }

 private:
  void touch();
  [[noreturn]] void throw_dropped() const;

  Context context_;
  Stream stream_;
  std::vector<StreamUse> users_;  // other streams
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t version_ = 0;
  Purpose purpose_;
  bool adopted_ = false, counted_ = false;
  bool was_dropped_ = false;
  Deleter deleter_;
  TouchHook touch_hook_;
  Elsewhere* elsewhere_ = nullptr;
};

}  // namespace keel
