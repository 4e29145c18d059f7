// says: nobody takes what is left over at the end
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
    const std::int64_t half = mine.count() / 2, middle = mine.begin + half;
    const keel::Span first = {mine.begin, middle}, second = {middle, mine.begin + 2 * half};
    const keel::Span sent = bit != 0 ? first : second;
    mine = bit != 0 ? second : first;
    halves.emplace_back(mine, sent);
    const keel::Piece came = {Place::scratch, {0, mine.count()}}, kept = {Place::output, mine};
    schedule.steps.push_back({.sends = {{rank ^ distance, {Place::output, sent}}},
                              .receives = {{rank ^ distance, came}},
                              .combinations = {{{came, kept}, kept}}});
  }
  for (int distance = 1; distance < n; distance *= 2) {
    const auto [kept, sent] = halves.back();
    halves.pop_back();
    schedule.steps.push_back({.sends = {{rank ^ distance, {Place::output, kept}}},
                              .receives = {{rank ^ distance, {Place::output, sent}}}});
  }
  return schedule;
}
