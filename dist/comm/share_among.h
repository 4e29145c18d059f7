#pragma once
// Memory that all ranks of a group see, one segment of each.

#include <optional>
#include <vector>

#include "keel/dist/comm/shared_segment.h"
#include "keel/dist/comm/transport.h"

namespace keel {

// `exchange(own)` returns what every rank brings, by rank. Returns nothing where some rank cannot see all segments:
// ranks of one machine that run in different containers may have no memory in common.
template <class Exchange>
std::optional<SharedAreas> share_among(int size, int rank, std::size_t bytes, const Exchange& exchange) {
  auto own = SharedSegment::create(bytes);
  const std::vector<SharedSegment::Name> names = exchange(own ? own->name() : SharedSegment::Name{});
  const auto segments = std::make_shared<std::vector<std::shared_ptr<SharedSegment>>>();
  SharedAreas shared{.owner = segments};
  bool has_all = own != nullptr;
  for (int r = 0; r < size && has_all; ++r) {
    segments->push_back(r == rank ? own : SharedSegment::open(names[static_cast<std::size_t>(r)], bytes));
    has_all = segments->back() != nullptr;
    if (has_all) shared.areas.push_back(segments->back()->memory());
  }
  for (const std::uint64_t others : exchange(std::uint64_t{has_all})) has_all = has_all && others != 0;
  if (own) own->hide();
  return has_all ? std::optional(shared) : std::nullopt;
}

}  // namespace keel
