#pragma once
// A group of ranks, as exercises get it.
//
// Every rank runs the same function, each in its own thread, and all call the same in the same order.

#include <memory>
#include <vector>

#include "learn/given/row.h"

namespace learn {

// Elements [begin, end).
struct Shard {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
// Those of `count` elements that belong to rank `rank` of n. The first count % n shards are one longer than
// the others; where count is below n, some are empty.
inline Shard shard(std::int64_t count, int n, int rank) {
  const std::int64_t each = count / n, longer = count % n;
  const auto begin_of = [&](std::int64_t r) { return r * each + (r < longer ? r : longer); };
  return {begin_of(rank), begin_of(rank + 1)};
}

inline Out row(std::vector<float>& numbers) {
  return {numbers.data(), static_cast<std::int64_t>(numbers.size())};
}
inline In row(const std::vector<float>& numbers) {
  return {numbers.data(), static_cast<std::int64_t>(numbers.size())};
}
template <class T>
Row<T> part(Row<T> whole, Shard of) {
  return {whole.data() + of.begin, of.size()};
}

// A call under way. Until wait() returns, what it reads must not be written, and what it writes is not there.
class [[nodiscard]] Work {
 public:
  struct Call;
  explicit Work(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  void wait();

 private:
  std::shared_ptr<Call> call_;
};

// A group as one of its ranks sees it. Each call returns at once.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // x becomes the sum of all ranks' x. Each rank sends what the two below send together.
  virtual Work all_reduce(Out x) = 0;
  // `mine` becomes the rank's shard of the sum of all ranks' `whole`. The rank sends whole.size() -
  // mine.size() numbers.
  virtual Work reduce_scatter(In whole, Out mine) = 0;
  // `whole` becomes all ranks' shards `mine`, one behind the other. `mine` may lie in its place there. The
  // rank sends (n - 1) * mine.size() numbers.
  virtual Work all_gather(In mine, Out whole) = 0;
};

}  // namespace learn
