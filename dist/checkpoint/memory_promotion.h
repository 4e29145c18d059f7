#pragma once
// Makes a checkpoint of what lies in the memory of hosts (memory_copies.h), by the protocol of all checkpoints.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "keel/dist/checkpoint/memory_folder.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

struct Promotion {
  std::int64_t step = 0;
  std::string path;   // of the checkpoint
  std::string hosts;  // out of whose memory it came: "a and b"
};

// Looks for the newest copy of a step in (above, below) that is whole, on all hosts together, and writes it as the
// checkpoint path_of(step), in a folder that all ranks see; one that is there is replaced. One rank of a host that has
// a part compares it with its hashes and writes it; where it is damaged, another host's is taken. Then the first rank
// commits. What was there before stays until then, and where anything fails. Copies stay as they are.
//
// `complain` is told on the first rank why a part, or a copy, is not usable. Every rank calls it, with the folder of
// its host; any number of ranks may.
std::optional<Promotion> promote_copy(const MemoryFolder& folder, Communicator& ranks, std::int64_t above,
                                      std::int64_t below, const std::function<std::string(std::int64_t)>& path_of,
                                      const std::function<void(std::string_view)>& complain);

}  // namespace keel
