#pragma once
// One save of one rank: its thread, and what it tells the other ranks.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/checkpoint/save.h"
#include "keel/dist/checkpoint/snapshot.h"

namespace keel {

// Where a rank's save stands.
struct SaveNote {
  enum class State : unsigned char {
    idle,
    writing,     // this rank's files
    written,     // they are on the disk
    committing,  // the first rank joins all
    committed,   // the folder has its name
    failed,      // here; the thread has ended
    given_up,    // as another rank has failed; the thread has ended
  };
  std::uint32_t number = 0;  // of the save, counted from 1
  State state = State::idle;
};

class SaveJob {
 public:
  // Every rank calls it. The first one makes the folder; where it cannot, an AgreedError.
  SaveJob(const std::string& path, std::uint32_t number, Communicator& ranks, const Json& state,
          std::function<void()> on_commit);
  // Ends the thread. Where it does not end soon, as the disk hangs, it is left to itself.
  ~SaveJob();
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;

  const std::string& path() const;
  // Whether ranks were lost since it began (Communicator::losses()), so that it has no result.
  bool is_broken() const;
  // Begins to write. `sections` is called by the thread.
  void write(std::function<std::vector<Section>()> sections);
  // Cannot begin to write.
  void fail(const std::string& reason);

  SaveNote note() const;
  // See AsyncSave.
  std::optional<SaveResult> hear(std::span<const SaveNote> notes);
  SaveResult finish();

 private:
  struct Shared;
  void run(SaveNote::State during, SaveNote::State then, std::function<void(Shared&)> work);
  void wait(std::chrono::milliseconds limit) const;

  Communicator& ranks_;
  std::uint32_t number_;
  std::shared_ptr<Shared> shared_;  // with the thread
  bool has_begun_commit_ = false;
};

}  // namespace keel
