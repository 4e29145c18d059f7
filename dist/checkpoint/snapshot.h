#pragma once
// What a rank has to save, and a copy of it as it is at one moment, while the originals change again.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/checkpoint/extent_writer.h"
#include "keel/dist/checkpoint/saved_beside.h"
#include "keel/dist/parallel/sharded.h"

namespace keel {

// Which of the ranks that hold parts this one is, counted from 0, and of how many: for the names of files. -1: none.
struct FileNumber {
  int index = -1, count = 1;
};
// Every rank calls it.
FileNumber number_files(const Sharded& engine, Communicator& ranks);

// "weights" or "optimizer" of an engine; of one that has a name, "stack.NAME.weights".
std::string section_of(const Sharded& engine, std::string_view what);
std::string section_of_stack(std::string_view name, std::string_view what);
// Weights and state of another engine, which is saved beside the first; both have names.
std::vector<SavedBeside> saved_with(Sharded& engine);

// Of a group of ranks that has weights of its own: its section, and views of this rank's weights, optimizer state, what
// its strategy of communication keeps of the group, and last the group's counts of steps.
std::string section_of_group(int group);
TensorParts group_parts(const Sharded& engine);

// Views of the weights, the optimizer's state and the residuals that this rank is to save, and of what is saved beside.
// Every rank calls it.
std::vector<Section> sections_of(const Sharded& engine, FileNumber number, std::span<const SavedBeside> beside = {});
std::int64_t bytes_of(const std::vector<Section>& sections);

// A copy of sections in the processor's memory (Purpose::checkpoint), which is kept from one time to the next. From a
// device the copy travels on a stream of its own; the engine's next update waits for it, the training thread does not.
class Snapshot {
 public:
  // Makes the memory, so that the first take() costs no more than the next.
  explicit Snapshot(const std::vector<Section>& sections);
  // Copies the numbers of sections of the same sizes.
  void take(const std::vector<Section>& sections, Sharded& engine, std::span<const SavedBeside> beside = {});
  // What was taken. Blocks until all of it is there; any thread may call it.
  const std::vector<Section>& sections() const;

 private:
  std::vector<Section> copies_;
  Stream stream_;
  Event arrived_;
};

}  // namespace keel
