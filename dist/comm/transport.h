#pragma once
// Bytes from one rank to another: what every collective is made of.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/dist/comm/alarm.h"
#include "keel/runtime/error.h"

namespace keel {

// How long others wait for the reason of a rank that left abruptly: one that unwinds from an exception leaves its
// groups before it can tell it, and one that has heard it may go before others have.
inline constexpr auto kTimeToTell = std::chrono::seconds(1);

// A message on its way. Destroying one that has not finished gives it up: afterwards nobody touches its memory, unless
// keep() was given the owner of that memory.
class Message {
 public:
  virtual ~Message() = default;
  // Makes progress. Once true, a sent message's memory may be written and a received one's read.
  virtual bool has_finished() = 0;
  // Names the owner of the message's memory. A transport that cannot take back a message that is half sent, such as
  // MPI's, keeps the owner alive for as long as MPI may touch the memory. Memory without an owner must then outlive the
  // transport's library.
  virtual void keep(const std::shared_ptr<const void>& /*owner*/) {}
};

// Memory that all ranks of a group see.
struct SharedAreas {
  std::vector<std::byte*> areas = {};      // by rank, at a multiple of a page
  std::shared_ptr<const void> owner = {};  // keeps them
  bool one_address_space = false;          // a rank sees all memory of the others, at the same addresses
};

// One rank's end of the connections to all ranks of a group. Not for two threads at once.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Messages of one sender, receiver and tag arrive in the order in which they were sent. A receiver names the exact
  // number of bytes. A rank cannot send to itself. Both functions, and their messages, throw an Error of kind peer once
  // a rank has called fail(), or has left while a message of its own was due.
  virtual std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Message> receive(int from, std::uint64_t tag, void* data, std::size_t bytes) = 0;

  // What is sent between these two calls may leave together, at the second one or before.
  virtual void hold() {}
  virtual void let_go() noexcept {}

  // This rank's end in the group of those that name the same colour, in the order of `key` and then of their ranks
  // here. Every rank calls it; blocks until all have. A failure anywhere is one of all groups.
  virtual std::unique_ptr<Transport> split(int color, int key) = 0;
  // The same, but what fails in one of these groups, or the end of one of its ranks, is a failure of that group and of
  // those split off from it alone; nor does one of this group reach it.
  virtual std::unique_ptr<Transport> split_apart(int /*color*/, int /*key*/) { refuse_to_survive(); }
  // A further end of the same ranks, whose messages go on whatever has failed: only that the other rank of a message is
  // gone, or has left, is an Error. Every rank calls it; blocks until all have.
  virtual std::unique_ptr<Transport> lifeline() { refuse_to_survive(); }
  // Of a lifeline: this rank's end in a group of these ranks, in their order, as split_apart() makes one. Each of them
  // calls it, with the same number below 4096 that no call before had; asks nobody. A rank that is gone is noticed by
  // the group's first messages.
  virtual std::unique_ptr<Transport> among(const std::vector<int>& /*members*/, std::uint32_t /*number*/) {
    refuse_to_survive();
  }

  // An area of `bytes` for each rank, zero at first; none where some ranks have no memory in common. Every rank calls
  // it; blocks until all have. Where ranks have one address space, every call gives the same areas.
  virtual std::optional<SharedAreas> share(std::size_t /*bytes*/) { return {}; }
  // Called after this rank wrote something in shared areas. `for_others`: others may wait for it.
  virtual void announce(bool /*for_others*/) {}

  // Blocks until something may have happened, for `limit` at most.
  virtual void idle(std::chrono::microseconds limit) = 0;
  // Whether the system ends idle() as soon as something has come, so that looking often before gains little.
  virtual bool idles_until_news() const { return false; }

  // Tells every rank of the program, this one included, that its groups are given up. All see the first reason.
  virtual void fail(const std::string& reason) noexcept = 0;
  // Throws the reason where a rank has given one.
  virtual void check() = 0;
  // Whether several threads may call, one at a time.
  virtual bool allows_threads() const { return true; }
  // Throws an Error of kind unsupported where this thread may not call.
  virtual void check_thread() const {}
  // For other threads than the one that calls here. Null where they may not call at the same time, as below MPI.
  virtual std::shared_ptr<Alarm> alarm() { return nullptr; }

 private:
  [[noreturn]] static void refuse_to_survive() {
    throw Error(
        "these ranks end together, as processes of MPI do; those that keel starts as threads or by `keel launch "
        "--tcp` can go on when others are gone",
        ErrorKind::unsupported);
  }
};

// Holds what a transport sends, until it goes.
class HeldSends {
 public:
  explicit HeldSends(Transport& transport) : transport_(transport) { transport_.hold(); }
  ~HeldSends() { transport_.let_go(); }
  HeldSends(const HeldSends&) = delete;
  HeldSends& operator=(const HeldSends&) = delete;

 private:
  Transport& transport_;
};

}  // namespace keel
