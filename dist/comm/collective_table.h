#pragma once
// The one table of collectives: who gives what, and who gets what.

#include <string_view>

#include "keel/dist/comm/communicator.h"

namespace keel {

// What a rank has before or after a collective: nothing, its part of a tensor, or all of it (the root alone, or every
// rank).
enum class Held : unsigned char { nothing, part, whole, whole_at_root };

struct CollectiveTraits {
  std::string_view name;
  Held given, gotten;
  bool adds = false;        // numbers, where the others move them
  bool has_root = false;    // Collective::peer
  bool is_message = false;  // between two ranks
};
const CollectiveTraits& traits_of(CollectiveKind kind);

}  // namespace keel
