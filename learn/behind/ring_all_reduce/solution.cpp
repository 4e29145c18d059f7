#include "keel/dist/comm/schedule.h"

using keel::Place;

keel::Schedule ring_all_reduce(std::int64_t count, int n, int rank) {
  keel::Schedule schedule;
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const auto span = [&](int i) { return keel::part({0, count}, n, (i + 2 * n) % n); };
  schedule.scratch = span(0).count();
  for (int s = 0; s + 1 < n; ++s) {
    const keel::Piece mine = {Place::output, span(rank - s - 1)};
    const keel::Piece came = {Place::scratch, {0, mine.span.count()}};
    schedule.steps.push_back({.sends = {{next, {Place::output, span(rank - s)}}},
                              .receives = {{previous, came}},
                              .combinations = {{{came, mine}, mine}}});
  }
  for (int s = 0; s + 1 < n; ++s)
    schedule.steps.push_back({.sends = {{next, {Place::output, span(rank + 1 - s)}}},
                              .receives = {{previous, {Place::output, span(rank - s)}}}});
  return schedule;
}
