#pragma once
// Ranks as threads of one process: a message is copied once, from the sender's memory to the receiver's.

#include <memory>

#include "keel/dist/comm/transport.h"

namespace keel {

// The meeting place of a group of ranks; connect() gives each rank its end. The last end that goes takes it along.
class ThreadHub {
 public:
  explicit ThreadHub(int size);
  int size() const;
  // Once for each rank, from any thread.
  std::unique_ptr<Transport> connect(int rank) const;

 private:
  struct State;
  struct Side;
  class Family;
  struct Split;
  class Endpoint;
  class Posted;
  class HubAlarm;
  explicit ThreadHub(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace keel
