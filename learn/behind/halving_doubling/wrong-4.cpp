// says: The all-gather undoes the halves in the opposite order
#include <utility>
#include <vector>

#include "keel/dist/comm/schedule.h"

using keel::Place;

keel::Schedule halving_doubling(std::int64_t count, int n, int rank) {
  keel::Schedule schedule;
  keel::Span mine = {0, count};
  schedule.scratch = keel::part(mine, 2, 0).count();
  std::vector<std::pair<keel::Span, keel::Span>> halves;  // kept and sent
  for (int distance = n / 2; distance > 0; distance /= 2) {
    const int bit = (rank & distance) != 0 ? 1 : 0;
    const keel::Span sent = keel::part(mine, 2, 1 - bit);
    mine = keel::part(mine, 2, bit);
    halves.emplace_back(mine, sent);
    const keel::Piece came = {Place::scratch, {0, mine.count()}}, kept = {Place::output, mine};
    schedule.steps.push_back({.sends = {{rank ^ distance, {Place::output, sent}}},
                              .receives = {{rank ^ distance, came}},
                              .combinations = {{{came, kept}, kept}}});
  }
  for (int distance = n / 2; distance > 0; distance /= 2) {
    const auto [kept, sent] = halves.front();
    halves.erase(halves.begin());
    schedule.steps.push_back({.sends = {{rank ^ distance, {Place::output, kept}}},
                              .receives = {{rank ^ distance, {Place::output, sent}}}});
  }
  return schedule;
}
