#pragma once
// What the algorithms of collectives share: writing down the schedule of one rank.

#include "keel/dist/comm/algorithms.h"

namespace keel::collectives {

// Writes the schedule of one rank.
class Writer {
 public:
  explicit Writer(const CollectiveShape& shape)
      : shape_(shape), whole_{0, shape.count}, cut_(shape.count, shape.size, shape.counts) {}

  int rank() const { return shape_.rank; }
  int size() const { return shape_.size; }
  Span whole() const { return whole_; }
  Span shard(int i) const { return cut_.of(i); }
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }

  void begin_step() { schedule_.steps.emplace_back(); }
  void send(int to, Piece piece) {
    if (piece.span.count() != 0) schedule_.steps.back().sends.push_back({to, piece});
  }
  void receive(int from, Piece piece) {
    if (piece.span.count() != 0) schedule_.steps.back().receives.push_back({from, piece});
  }
  void combine(std::vector<Piece> terms, Piece result) {
    if (result.span.count() != 0) schedule_.steps.back().combinations.push_back({std::move(terms), result});
  }
  // Fresh memory for a piece of this length.
  Piece scratch(std::int64_t count) {
    const std::int64_t begin = schedule_.scratch;
    schedule_.scratch += count;
    return {Place::scratch, {begin, begin + count}};
  }
  Schedule finish() {
    std::erase_if(schedule_.steps, [](const Step& step) {
      return step.sends.empty() && step.receives.empty() && step.combinations.empty();
    });
    return std::move(schedule_);
  }

 private:
  const CollectiveShape& shape_;
  Span whole_;
  Cut cut_;
  Schedule schedule_;
};

inline Piece input(Span span) { return {Place::input, span}; }
inline Piece output(Span span) { return {Place::output, span}; }
inline Span moved(Span span, std::int64_t by) { return {span.begin + by, span.end + by}; }
// Where a rank's shard lies in a tensor that holds nothing else.
inline Span alone(Span shard) { return {0, shard.count()}; }

// Copies the shard that a rank brings to its place in the output, for algorithms that pass it on from there.
inline void write_own_shard(Writer& w) {
  w.begin_step();
  w.combine({input(alone(w.shard(w.rank())))}, output(w.shard(w.rank())));
}

// Rank 0, which holds the whole sum, gives each rank its shard of it.
inline void write_scatter(Writer& w, Piece sum) {
  w.begin_step();
  const Piece own = output(alone(w.shard(w.rank())));
  if (w.rank() != 0) return w.receive(0, own);
  for (int peer = 1; peer < w.size(); ++peer) w.send(peer, {sum.place, moved(w.shard(peer), sum.span.begin)});
  w.combine({{sum.place, moved(w.shard(0), sum.span.begin)}}, own);
}

}  // namespace keel::collectives
