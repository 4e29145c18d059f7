// says: Every rank adds in another order
#include "keel/dist/comm/schedule.h"

using keel::Place;

keel::Schedule ring_all_reduce(std::int64_t count, int n, int rank) {
  keel::Schedule schedule;
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const keel::Piece x = {Place::output, {0, count}};
  schedule.scratch = 2 * count;
  for (int s = 0; s + 1 < n; ++s) {
    const keel::Piece came = {Place::scratch, {s % 2 * count, (s % 2 + 1) * count}};
    const keel::Piece before = {Place::scratch, {(s + 1) % 2 * count, ((s + 1) % 2 + 1) * count}};
    schedule.steps.push_back({.sends = {{next, s == 0 ? x : before}},
                              .receives = {{previous, came}},
                              .combinations = {{{x, came}, x}}});
  }
  return schedule;
}
