// halving_doubling: the sum of all ranks in 2 log2(n) steps
//
// A ring sends little, and takes 2 (n - 1) steps. A step costs microseconds, whatever it sends. So for small
// x the number of steps is what counts. Here n is a power of two, and the numbers of two partners differ in
// one bit (Thakur, Rabenseifner and Gropp, 2005):
//
//   reduce-scatter by halving. The first partner is rank ^ (n / 2), the next one rank ^ (n / 4), and the last
//     one rank ^ 1. Both partners work on the same span of x, at first all of it. One keeps the first half of
//     the span, and the other the second. Each sends the half that it does not keep, and adds what comes to
//     the half that it keeps. That half is the next span.
//   all-gather by doubling. The same partners come in the opposite order, and each sends all that is
//     complete.
//
// Each rank sends 2 (n - 1) / n of x, as in a ring. Three ranks have no such partners: one of them gives its
// x to another one first, and gets the sum at the end. You need not write that.
//
// exercises/ring_all_reduce.cpp explains schedules. x lies in Place::output. keel::part(span, 2, 0) and
// keel::part(span, 2, 1) are the halves of a span; the first is longer where its count is odd.
//
// Write the schedule of one rank. n is 1, 2, 4, 8, ... To read afterwards: dist/comm/algorithms/halving.cpp,
// which does it for any n.

#include "keel/dist/comm/schedule.h"

using keel::Place;

keel::Schedule halving_doubling(std::int64_t count, int n, int rank) {
  keel::Schedule schedule;
  // Your code: schedule.scratch = ...; schedule.steps.push_back({...});
  return schedule;
}
