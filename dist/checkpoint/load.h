#pragma once
// Gives an engine the numbers of a checkpoint, whatever number of ranks and whatever stage has written it.

#include <span>
#include <string>
#include <string_view>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/checkpoint/saved_beside.h"
#include "keel/dist/parallel/sharded.h"

namespace keel {

// The first rank's manifest, on every rank: one rank opens it, and all see the same.
Manifest broadcast_manifest(Manifest manifest, Communicator& ranks);

// An Error where the model or the optimizer of the engine is another one. For each rank by itself; reads no file.
void check_checkpoint(const std::string& folder, const Manifest& manifest, const Sharded& engine);

// The ranks read the extents that hold what they own, each extent once, compare them with their hashes, and take the
// numbers, with counts of steps, loss scale and what compression had not delivered. An AgreedError of
// check_checkpoint() changes nothing. One of damage, or of a file that cannot be read, names tensor and file; then
// nothing can be expected of the engine's numbers until another checkpoint was loaded. Every rank calls it. Memory
// beside the engine's: a few extents, and with error feedback the residuals of those ranks that this one takes over.
void load_checkpoint(const std::string& folder, const Manifest& manifest, Sharded& engine, Communicator& ranks);

// Fills what a checkpoint holds beside the engine's numbers. A tensor that is missing, or of another shape, is an
// AgreedError that begins with `complaint` and changes nothing; damage as above. Every rank calls it, once nobody reads
// the parts any more (Sharded::wait_until_released()).
void load_beside(const std::string& folder, const Manifest& manifest, const SavedBeside& beside,
                 std::string_view complaint, Communicator& ranks);

// As load_checkpoint() of the weights alone, which may be frozen: an engine that answers needs no more.
void load_weights(const std::string& folder, const Manifest& manifest, Sharded& engine, Communicator& ranks,
                  std::string_view section = "weights");
// Likewise from safetensors files of any origin.
void load_weights(const std::string& folder, std::span<const std::string> files, Sharded& engine, Communicator& ranks);

}  // namespace keel
