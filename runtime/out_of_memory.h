#pragma once
// An allocation that found no memory.

#include "keel/runtime/error.h"

namespace keel {

// The message says how much was asked for, and what is in use by purpose.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& message) : Error(message, ErrorKind::io) {}
};

}  // namespace keel
