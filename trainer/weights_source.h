#pragma once
// Weights that others have made: a safetensors file, several with an index, a checkpoint, or the newest checkpoint of a
// run.

#include <string>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

struct WeightsSource {
  std::string folder;  // of the manifest's files
  Manifest manifest;   // whose section "weights" it is
  // Of names, shapes, numbers and the parts in which they were written: another one means other weights, or a
  // checkpoint of the same ones by another number of ranks, or a file in place of a checkpoint.
  std::string identity;
  bool is_checkpoint = false;  // for the first rank
};

// What the path means, as the first rank finds it; what it says is read by all. A path that is none of these, or
// cannot be opened, is an AgreedError. Several files are the folder of the index, or the index itself. The identity of
// a checkpoint is made of the hashes that its manifest has; that of files is the hash of their bytes, which the first
// rank reads. Every rank calls it.
WeightsSource find_weights(const std::string& path, Communicator& ranks);

}  // namespace keel
