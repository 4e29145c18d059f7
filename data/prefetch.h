#pragma once
// Loads batches ahead of their use, on a thread of its own.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "keel/data/batch.h"

namespace keel {

class PrefetchLoader {
 public:
  // Batches come in the order of steps from `first_step` on, and within a step in the order of `ranges`
  // (empty: one batch of all rows). Ranges are clipped to the rows that a step has. At most `depth` wait. With a
  // `target`, batches travel there ahead of their use, too, beside the device's other work.
  PrefetchLoader(std::shared_ptr<const BatchSource> loader, std::int64_t first_step, std::vector<Rows> ranges = {},
                 int depth = 2, const Context& target = {});
  ~PrefetchLoader();
  PrefetchLoader(const PrefetchLoader&) = delete;
  PrefetchLoader& operator=(const PrefetchLoader&) = delete;

  // Waits for the next batch; none after the loader's last step. An error met while loading is thrown here, once
  // the batches before it are taken, and at every call after that.
  std::optional<Batch> next();
  // Waits until `count` batches, at most `depth`, are loaded, or the last one is. Returns what an error met on the way
  // says, which next() will throw; else nothing.
  std::string look_ahead(std::size_t count);

 private:
  struct Sent {
    Batch batch;
    Event arrived;
  };
  void work();
  // False when the batches are no longer wanted.
  bool put(const Batch& batch);
  Sent send(const Batch& batch) const;

  std::shared_ptr<const BatchSource> loader_;
  std::int64_t first_step_;
  std::vector<Rows> ranges_;
  std::size_t depth_;
  Context target_;
  Stream copies_;  // of the target

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Sent> waiting_;
  std::exception_ptr error_;
  bool finished_ = false;  // the thread adds nothing more
  bool stopped_ = false;   // nobody takes more

  std::thread thread_;  // last: it uses the others
};

}  // namespace keel
