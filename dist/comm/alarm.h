#pragma once
// News of failures beside a communicator's collectives: for a thread that watches over other work of its rank, such as
// that of a device.

#include <string>

#include "keel/runtime/language.h"

namespace keel {

// Any thread may call, also while others use the communicator, which must outlive this.
class Alarm {
 public:
  virtual ~Alarm() = default;
  // The reason that a rank has given; "" as long as none is known here. Does not block.
  virtual std::string heard() = 0;
  // Tells all ranks, as Communicator::fail() does.
  virtual void raise(const std::string& reason) noexcept = 0;
};

}  // namespace keel
