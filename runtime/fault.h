#pragma once
// How a kernel of a device reports bad data: it cannot throw, so it leaves a note that the next wait turns into an
// Error.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

enum class FaultKind : unsigned char {
  embedding_id,
  gather_index,
  select_index,
  add_index,
  target,
  payload_place,
  rotary_position
};

// The first note wins, and stays until it is read. Lives in host memory that the device can write.
struct Fault {
  static constexpr unsigned kNone = 0, kBegun = 1, kWhole = 2;
  unsigned raised = kNone;
  FaultKind kind = FaultKind::embedding_id;
  std::int64_t position = 0;  // of the value in its tensor
  std::int64_t value = 0;
  std::int64_t limit = 0;  // the value had to be in [0, limit)
};

class DeviceApi;
// Throws the Error that the note asks for, if there is one, and clears it.
void throw_fault(DeviceApi& api);

}  // namespace keel
