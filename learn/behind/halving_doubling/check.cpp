#include <bit>

#include "learn/behind/schedules.h"

keel::Schedule halving_doubling(std::int64_t count, int n, int rank);

namespace {

constexpr std::string_view kGather =
    "Not all parts come to all ranks. The all-gather undoes the halves in the opposite order: its first "
    "partner is the "
    "last one of the reduce-scatter, rank ^ 1, and each pair exchanges what it cut there.";

learn::Played played(int n, std::int64_t count) {
  learn::Played game = learn::play(halving_doubling, count, n);
  learn::expect_sums(game, kGather);
  return game;
}

}  // namespace

int main() {
  return learn::run({
      {"two ranks have the sum of both", [] { played(2, 4); }},
      {"four ranks have the sum of all", [] { played(4, 8); }},
      {"a rank alone sends nothing",
       [] { learn::expect_steps(played(1, 5), 0, "A rank alone has the sum already."); }},
      {"counts that are no multiple of n",
       [] {
         for (const int n : {2, 4, 8, 16})
           for (const std::int64_t count : {0, 1, 2, 3, 7, 13, 101}) played(n, count);
       }},
      {"all ranks end with the same bits",
       [] {
         for (const int n : {4, 8})
           learn::expect_equal_bits(
               played(n, 301),
               "Ranks add in different orders, and (a + b) + c is not a + (b + c) in 32 bits.");
       }},
      {"each rank sends 2 (n - 1) / n of x",
       [] {
         for (const int n : {2, 4, 8})
           learn::expect_sent(
               played(n, 48), 2 * (n - 1) * 48 / n,
               "A rank sends the half that it does not keep, then half of what it kept, and so on. "
               "Sending all of x to each partner gives the sum too, by log2(n) times x.");
       }},
      {"in 2 log2(n) steps",
       [] {
         for (const int n : {2, 4, 8, 16})
           learn::expect_steps(
               played(n, 48), 2 * (std::bit_width(static_cast<unsigned>(n)) - 1),
               "Each partner comes once in the reduce-scatter and once in the all-gather, and a step "
               "can send and receive at the same time.");
       }},
  });
}
