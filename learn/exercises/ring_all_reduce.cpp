// ring_all_reduce: the sum of all ranks, on all ranks, by talking to two neighbours
//
// Each of n ranks has `count` numbers, x. At the end each must have the sum of all n. A rank that sends its x
// to every other one sends n - 1 times x. In a ring it sends less than 2 times x, however many ranks there
// are (Patarasuk and Yuan, 2009). x is cut into n parts. Rank r sends to rank r + 1, the last one to 0.
//
//   reduce-scatter, n - 1 steps: each rank sends one part, and adds the part that comes to its own. A part
//     that set out at rank r is complete at rank r - 1: it has been at all ranks then.
//   all-gather, n - 1 steps: the complete parts go round once more, and replace what was there.
//
// A schedule says this as data (dist/comm/schedule.h). In a step all sends and receives are under way
// together, and then its combinations are computed. x lies in Place::output from the beginning to the end.
// Place::scratch has schedule.scratch numbers. For example, the first step of rank 0 of two, count 8:
//
//   {.sends = {{1, {Place::output, {0, 4}}}},         // x[0] to x[3], to rank 1
//    .receives = {{1, {Place::scratch, {0, 4}}}},     // from rank 1
//    .combinations = {{{{Place::output, {4, 8}}, {Place::scratch, {0, 4}}},  // the sum of these two
//                      {Place::output, {4, 8}}}}}                            // becomes x[4] to x[7]
//
// keel::part({0, count}, n, i) is the i-th of n parts of x. Their lengths differ by one at most; some may be
// empty.
//
// Write the schedule of one rank. A rank alone has nothing to do. To read afterwards:
// dist/comm/algorithms/ring.cpp.

#include "keel/dist/comm/schedule.h"

using keel::Place;

keel::Schedule ring_all_reduce(std::int64_t count, int n, int rank) {
  keel::Schedule schedule;
  // Your code: schedule.scratch = ...; schedule.steps.push_back({...});
  return schedule;
}
