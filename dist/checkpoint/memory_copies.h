#pragma once
// Copies of an engine's newest state in the memory of hosts, which outlive the processes that wrote them.
//
//   1. Each rank writes its files and part-R.json, as a checkpoint has them (save.h), into its host's MemoryFolder.
//   2. It sends them to its partner on another host (memory_hosts.h), in pieces of 16 MiB, which writes them there and
//      compares them with their hashes.
//   3. Where all ranks have both, the first rank of each host writes copy.json, which says how many ranks there are and
//      what the manifest's `state` is to be. Where all hosts have that, the copy before loses its own. Its files stay,
//      without a meaning, for the copy after the next: memory that the system has to find again costs more than the
//      bytes.
//
// A copy counts where any host has its copy.json, as then all parts had been written. Processes that are killed at any
// point leave the copy before or the new one; a host that is lost takes no part along that no other host has. There is
// no joint manifest in memory: hosts would have to hear of all extents of all ranks with every copy.
// memory_promotion.h makes a checkpoint out of the parts.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "keel/dist/checkpoint/memory_folder.h"
#include "keel/dist/checkpoint/memory_hosts.h"
#include "keel/dist/checkpoint/snapshot.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/runtime/json.h"

namespace keel {

class MemoryFiles;

class MemoryCopies {
 public:
  // Of a rank's files in a host's memory: the newest copy, and the one that is made or is to be made next.
  static constexpr int kAtOnce = 2;

  // Every rank makes one, with the folder of its host. `engine` and `ranks` must outlive this; `ranks` are those of the
  // engine, by a communicator of the processor.
  MemoryCopies(const Sharded& engine, Communicator& ranks, MemoryFolder folder);
  ~MemoryCopies();  // what is in memory stays
  MemoryCopies(const MemoryCopies&) = delete;
  MemoryCopies& operator=(const MemoryCopies&) = delete;

  const MemoryFolder& folder() const { return folder_; }
  const MemoryHosts& hosts() const { return hosts_; }

  // Makes the copy of a step later than those before. `state`, the first rank's, is that of a checkpoint, as is what
  // comes beside. Every rank
  // calls it, between two steps; it returns when the copy is there, or else why not, the same on all ranks: then the
  // one before is still there. Memory of the host: kAtOnce times the own files and those that the rank keeps for
  // others.
  std::string take(std::int64_t step, const Json& state, std::span<const SavedBeside> beside = {});
  // Removes the copies, of which nothing can be gone on from any more. Every rank calls it.
  void remove();

 private:
  static constexpr std::int64_t kNone = -1;

  std::string vote(const std::function<void()>& f);
  MemoryFiles& files_of_next(std::int64_t step);
  void make_room(std::int64_t step) const;
  std::string write(const std::string& folder, MemoryFiles& files, std::span<const SavedBeside> beside) const;
  void settle(std::int64_t step);
  void drop(std::int64_t step);

  const Sharded& engine_;
  Communicator& ranks_;
  MemoryFolder folder_;
  MemoryHosts hosts_;
  FileNumber number_;
  std::int64_t newest_ = kNone, spare_ = kNone;  // steps; the files of the latter are written again
  std::map<std::int64_t, MemoryFiles> files_;    // by step
};

// What copy.json says.
struct MemoryMark {
  static constexpr std::string_view kFile = "copy.json";
  int ranks = 0;  // that have written parts
  Json state = Json::object();
};
std::string mark_text(const MemoryMark& mark);
// A text that has changed or is malformed is an Error that names `path`.
MemoryMark parse_mark(std::string_view text, const std::string& path);

}  // namespace keel
