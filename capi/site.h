#pragma once
// Where a host's models live: a rank's communicator, and its device.

#include <memory>
#include <mutex>

#include "keel/capi/settings.h"
#include "keel/dist/comm/communicator.h"
#include "keel/runtime/context.h"

namespace keel::capi {

// What a keel_context is. Its arrays and models share it.
struct Site {
  Settings settings;                         // that it was made with
  std::unique_ptr<Communicator> own;         // of this process's rank
  std::unique_ptr<Communicator> background;  // the same with a thread for communication, or nothing
  Context context;
  std::mutex busy;

  Site(const Settings& settings, std::unique_ptr<Communicator> ranks);
  Communicator& ranks() const { return background ? *background : *own; }
};

// Keeps other threads out while a call works with the context; an Error where one is at work.
class Turn {
 public:
  explicit Turn(Site& site);

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace keel::capi
