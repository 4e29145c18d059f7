#pragma once
// A collective as data: what one rank sends, receives and adds, step by step.
//
// Algorithms (keel/dist/comm/algorithms.h) write schedules, and know neither messages nor dtypes; whoever runs one
// needs to know nothing about the algorithm. Bytes, steps and the order of additions can be read off before anything
// moves.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// Elements [begin, end).
struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const Span&, const Span&) = default;
};

// The i-th of n parts of a span, whose lengths differ by one at most. A rank's shard of `whole` is part(whole, ranks,
// rank).
Span part(Span whole, int n, int i);

// How a tensor is cut among ranks, one part behind the other: shards as part() says, or by counts.
class Cut {
 public:
  Cut(std::int64_t count, int ranks) : ranks_(ranks), count_(count) {}
  // `counts`: elements of each rank; empty: shards.
  Cut(std::int64_t count, int ranks, std::span<const std::int64_t> counts);
  Span of(int rank) const {
    if (begins_.empty()) return part({0, count_}, ranks_, rank);
    const auto r = static_cast<std::size_t>(rank);
    return {begins_[r], begins_[r + 1]};
  }
  std::int64_t count() const { return count_; }
  std::int64_t longest() const;

 private:
  int ranks_;
  std::int64_t count_;
  std::vector<std::int64_t> begins_ = {};  // and the end of the last; empty: shards
};

// Where elements lie: in what the caller gave, in what the caller gets (often the same memory), or in memory that the
// collective uses meanwhile.
enum class Place : unsigned char { input, output, scratch };

struct Piece {
  Place place = Place::input;
  Span span = {};
};

struct Transfer {
  int peer = 0;
  Piece piece;
};

// result = terms[0] + terms[1] + ..., from left to right in fp32 or wider, rounded once; a copy where there is one
// term. The result may be one of the terms.
struct Combination {
  std::vector<Piece> terms;
  Piece result;
};

// All transfers of a step are under way together; when the last has finished, its combinations follow in order.
struct Step {
  std::vector<Transfer> sends = {}, receives = {};
  std::vector<Combination> combinations = {};
};

struct Schedule {
  std::vector<Step> steps = {};
  std::int64_t scratch = 0;  // elements of Place::scratch

  // Elements that this rank sends: to all ranks, or to those for which `counts` is true.
  std::int64_t elements_sent() const;
  template <class Predicate>
  std::int64_t elements_sent_to(Predicate&& counts) const {
    std::int64_t sum = 0;
    for (const Step& step : steps)
      for (const Transfer& send : step.sends)
        if (counts(send.peer)) sum += send.piece.span.count();
    return sum;
  }
};

}  // namespace keel
