#pragma once
// Runs schedules (keel/dist/comm/schedule.h) of all ranks against each other, without keel's own interpreter.
//
// x lies in Place::output. Transfers meet in pairs: a send ends when its receiver takes it, so that what
// waits for ever in some transport waits here. Beside its value every number knows which ranks' x are in it.

#include <functional>

#include "keel/dist/comm/schedule.h"
#include "learn/behind/check.h"

namespace learn {

using ScheduleOf = std::function<keel::Schedule(std::int64_t count, int n, int rank)>;

struct Number {
  float value = 0;
  std::vector<int> times;  // how often each rank's x is in it; empty: never written
  std::int64_t place = 0;  // in x, at first
};

struct Played {
  int n = 0;
  std::int64_t count = 0;
  std::vector<keel::Schedule> schedules = {};            // by rank
  std::vector<std::vector<Number>> before = {}, x = {};  // by rank

  std::string all() const;  // "4 ranks, count 10"
};

// Ends the law where ranks wait for each other, lengths differ, or a piece lies outside of its place.
Played play(const ScheduleOf& schedule_of, std::int64_t count, int n);

// Ends the law where an x is not the sum of all. `gather`: which mistake leaves other parts without a sum.
void expect_sums(const Played& played, std::string_view gather);
void expect_equal_bits(const Played& played, std::string_view why);
// That no rank sends more than `most` numbers.
void expect_sent(const Played& played, std::int64_t most, std::string_view why);
void expect_steps(const Played& played, std::int64_t most, std::string_view why);

}  // namespace learn
