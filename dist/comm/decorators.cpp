#include "keel/dist/comm/decorators.h"

#include <thread>

#include "keel/runtime/random.h"

namespace keel {

Work DelayedCommunicator::begin(const Collective& collective) {
  const PhiloxWords words =
      stream_block({static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(rank())}, number_++);
  std::this_thread::sleep_for(longest_ * words[0] / 0xffffffffull);
  return inner_.begin(collective);
}

Work WatchedCommunicator::begin(const Collective& collective) {
  callback_((*number_)++, collective);
  return inner_.begin(collective);
}

std::unique_ptr<Communicator> WatchedCommunicator::split(int color, int key) {
  return std::unique_ptr<Communicator>(new WatchedCommunicator(inner_.split(color, key), *this));
}

}  // namespace keel
