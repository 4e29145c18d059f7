#pragma once
// How a checkpoint is made: the ranks' files, the vote, and the commit.
//
//   1. The first rank makes a folder NAME.<16 digits>.tmp.
//   2. A thread of each rank writes its files there, flushes and hashes them, and writes what it has written as
//      part-R.json. It touches no communicator.
//   3. Where all ranks have written, a thread of the first one joins the parts, writes the manifest, flushes it, and
//   gives
//      the folder its name in one step. Where one has failed, the folder disappears, and what was there before stays.
//
// A program that is killed at any point leaves NAME as it was before or as it should be.

#include <functional>
#include <span>
#include <string>

#include "keel/dist/checkpoint/saved_beside.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/runtime/json.h"

namespace keel {

struct SaveResult {
  std::string path;
  std::string failure = {};  // "rank 1: cannot write ..."; empty: the checkpoint is there
  std::string warning = {};  // what else is to be told; of the first rank
};

// Makes the checkpoint `path`, or replaces it, in a folder that all ranks see, and returns when it is there. `state`,
// the first rank's, is kept in the manifest; the engine's counts of steps and loss scale join it as "optimizer". Every
// rank calls it; it waits for disks as long as they take. A failure on any rank is an AgreedError of kind io.
// `on_commit` is called by a thread of the first rank when the folder has its name; what it throws is a warning.
SaveResult save_checkpoint(const std::string& path, const Sharded& engine, Communicator& ranks, const Json& state,
                           std::function<void()> on_commit = {}, std::span<const SavedBeside> beside = {});

// Puts those counts into a state: "optimizer", or of engines that have names, "stacks.NAME".
void keep_steps(Json& state, const Sharded& engine, std::span<const SavedBeside> beside);
// Those of an engine of this name.
const Json& kept_steps(const Json& state, const std::string& name);

// Those counts as JSON, and back. What is missing or no number is a JsonError.
Json json_of(const StepState& steps);
StepState parse_steps(const Json& json);

}  // namespace keel
