#include "keel/dist/comm/collective_table.h"

namespace keel {

const CollectiveTraits& traits_of(CollectiveKind kind) {
  using enum Held;
  static constexpr CollectiveTraits kTable[] = {
      // By CollectiveKind.
      {.name = "all_reduce", .given = whole, .gotten = whole, .adds = true},
      {.name = "reduce_scatter", .given = whole, .gotten = part, .adds = true},
      {.name = "all_gather", .given = part, .gotten = whole},
      {.name = "broadcast", .given = whole_at_root, .gotten = whole, .has_root = true},
      {.name = "all_to_all", .given = whole, .gotten = whole},
      {.name = "reduce", .given = whole, .gotten = whole_at_root, .adds = true, .has_root = true},
      {.name = "gather", .given = part, .gotten = whole_at_root, .has_root = true},
      {.name = "scatter", .given = whole_at_root, .gotten = part, .has_root = true},
      {.name = "barrier", .given = nothing, .gotten = nothing},
      {.name = "send", .given = whole, .gotten = nothing, .is_message = true},
      {.name = "receive", .given = nothing, .gotten = whole, .is_message = true},
  };
  return kTable[static_cast<int>(kind)];
}

}  // namespace keel
