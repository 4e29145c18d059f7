#pragma once
// What each rank has written, in files of a checkpoint's folder, for the rank that commits.

#include <optional>
#include <string>
#include <string_view>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/runtime/file.h"

namespace keel {

// "part-3.json", and back; nothing for another name.
std::string part_name(int rank);
std::optional<int> rank_of_part(std::string_view name);

void write_part(const std::string& folder, int rank, const Manifest& part);
Manifest read_part(const std::string& folder, int rank);

// Joins what so many ranks have written, and removes those files. Waits for what the file system does not show yet; an
// Error where it never does, or where the parts do not make up whole tensors. Opens one file for each rank.
Manifest join_parts(const std::string& folder, int ranks);

// Joins what so many ranks have written into the unfinished folder, writes the manifest with `state`, flushes it, and
// gives the folder its name. Returns a warning; empty: none.
std::string commit_parts(AtomicFolder& made, int ranks, const Json& state);

}  // namespace keel
