#pragma once
// Computing that takes a given time, without a look at the clock.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel::lab {

// Rounds of a sum on one core, as many as take so long by a measurement that the constructor makes.
class BusyWork {
 public:
  explicit BusyWork(double microseconds);
  void run() const;

 private:
  std::int64_t rounds_;
};

}  // namespace keel::lab
