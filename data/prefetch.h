#pragma once
// Loads batches ahead of their use, on threads of its own, or without threads when they are asked for.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
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
  // The batches of a step, in order.
  using RangesOfStep = std::function<std::vector<Rows>(std::int64_t step)>;

  // Batches come in the order of steps from `first_step` on, whichever of the `workers` threads loads them. Without
  // `ranges`, a step is one batch of all rows. At most `depth` wait, and every worker has one at hand. With a `target`,
  // batches travel there ahead of their use, too, beside the device's other work. With 0 workers, the thread that asks
  // for a batch loads it.
  PrefetchLoader(std::shared_ptr<const BatchSource> loader, std::int64_t first_step, RangesOfStep ranges = {},
                 int depth = 2, const Context& target = {}, int workers = 1);
  ~PrefetchLoader();
  PrefetchLoader(const PrefetchLoader&) = delete;
  PrefetchLoader& operator=(const PrefetchLoader&) = delete;

  // Waits for the next batch; none after the loader's last step. An error met while a batch was loaded is thrown in its
  // place, once the batches before it are taken, and at every call after that.
  std::optional<Batch> next();
  // Waits until the next `count` batches, at most `depth`, are loaded, or the last one is. Returns what an error met on
  // the way says, which next() will throw; else nothing.
  std::string look_ahead(std::size_t count);

 private:
  // Batches are numbered in the order in which they are taken.
  struct Job {
    std::int64_t number = 0, step = 0;
    Rows range;
  };
  // What has become of one: a batch, or the reason why there is none.
  struct Loaded {
    Batch batch;
    Event arrived;
    std::exception_ptr error;
  };
  void work();
  // Loads the next batch that nobody loads yet; false where nothing is left.
  bool load_next();
  // Without workers: loads until so many can be taken, one has failed, or nothing is left.
  void load_here(std::size_t count);
  // The next one that nobody loads yet; none where nothing is left. Called with the lock held.
  std::optional<Job> take_job();
  Loaded load(const Job& job);
  void put(const Job& job, Loaded loaded);
  // How many of the next ones can be taken, the one that has failed among them. Called with the lock held.
  std::size_t ready() const;

  std::shared_ptr<const BatchSource> loader_;
  RangesOfStep ranges_;
  std::int64_t depth_;
  Context target_;
  Stream copies_;  // of the target

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::map<std::int64_t, Loaded> waiting_;  // by number
  std::int64_t taken_ = 0;                  // batches
  std::int64_t issued_ = 0;                 // jobs
  std::int64_t step_;                       // whose ranges come next
  std::deque<Job> jobs_;                    // of the step before, that nobody loads yet
  bool all_issued_ = false;                 // there are no more jobs
  bool stopped_ = false;                    // nobody takes more

  std::mutex sending_;                // one batch travels at a time
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace keel
