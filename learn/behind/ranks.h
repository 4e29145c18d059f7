#pragma once
// Ranks as threads, whose calls are watched: who waits for whom, what was sent, and what was touched
// meanwhile.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

#include "learn/behind/check.h"
#include "learn/given/ranks.h"

namespace learn {

class Ranks;

enum class Kind : unsigned char { all_reduce, reduce_scatter, all_gather };

struct Work::Call {
  Ranks* ranks = nullptr;
  int rank = 0;
  std::size_t number = 0;  // among those of its rank
  Kind kind = Kind::all_reduce;
  In input = {nullptr, 0};
  Out output = {nullptr, 0};
  std::vector<float> given = {};        // the input when the call was made
  bool finished = false, lost = false;  // lost: the memory of the output is gone

  std::int64_t count() const { return kind == Kind::all_gather ? output.size() : input.size(); }
  std::string text() const;  // "all_gather of 8 numbers"
};
using Call = Work::Call;

class Ranks {
 public:
  explicit Ranks(int n) : ranks_(static_cast<std::size_t>(n)) {}
  int size() const { return static_cast<int>(ranks_.size()); }

  // Called in the rank's thread when a call was made, and when one is waited for.
  std::function<void(const Call&)> on_begin = {}, on_wait = {};

  // f for each rank, in threads of their own. What the lowest rank throws ends the law, as does a rank that
  // ends while others wait for it.
  void run(const std::function<void(Group&)>& f);

  // To be called in the rank's thread before memory goes of which calls under way may need to know.
  void released(int rank, const float* data, std::int64_t count);

  // Of all runs:
  std::int64_t bytes(int rank) const { return at(rank).bytes; }
  std::size_t calls(int rank) const { return at(rank).calls.size(); }

 private:
  friend class Work;
  class Member;
  struct Rank {
    std::vector<std::shared_ptr<Call>> calls = {};
    std::int64_t bytes = 0;
    bool ended = false;
    std::exception_ptr failure = {};
  };
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Work begin(const Call& call);
  void wait(Call& call);
  void meet(std::unique_lock<std::mutex>& lock, const Call& call);
  std::vector<int> without(std::size_t number) const;
  void check_untouched(const Call& call) const;
  void finish(Call& call) const;
  bool await();

  std::vector<Rank> ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

// "rank 2", "ranks 0, 1 and 3"
std::string names(const std::vector<int>& ranks);

}  // namespace learn
