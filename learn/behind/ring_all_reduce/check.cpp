#include "learn/behind/schedules.h"

keel::Schedule ring_all_reduce(std::int64_t count, int n, int rank);

namespace {

constexpr std::string_view kGather =
    "Some parts go round before they are complete. After the reduce-scatter rank r has the complete part of "
    "which it "
    "received the last sum, and that is the first one that it must send in the all-gather.";

learn::Played played(int n, std::int64_t count) {
  learn::Played game = learn::play(ring_all_reduce, count, n);
  learn::expect_sums(game, kGather);
  return game;
}

void neighbours(int n) {
  const learn::Played game = played(n, 5 * n + 3);
  for (int r = 0; r < n; ++r) {
    int to = -1;
    for (const keel::Step& step : game.schedules[static_cast<std::size_t>(r)].steps)
      for (const keel::Transfer& send : step.sends) {
        if (to < 0) to = send.peer;
        if (send.peer != to)
          learn::wrong(
              "With {}, rank {} sends to ranks {} and {}. In a ring all that it sends goes to one neighbour.",
              game.all(), r, to, send.peer);
      }
  }
}

}  // namespace

int main() {
  return learn::run({
      {"two ranks have the sum of both", [] { played(2, 4); }},
      {"four ranks have the sum of all", [] { played(4, 8); }},
      {"a rank alone sends nothing",
       [] {
         const learn::Played game = played(1, 5);
         learn::expect_steps(game, 0, "A rank alone has the sum already.");
       }},
      {"other numbers of ranks, and counts that they do not divide",
       [] {
         for (const int n : {2, 3, 4, 5, 8})
           for (const std::int64_t count : {0, 1, 2, 7, 13, 16, 101}) played(n, count);
       }},
      {"all ranks end with the same bits",
       [] {
         for (const int n : {3, 4, 8})
           learn::expect_equal_bits(
               played(n, 501),
               "Every rank adds in another order, and (a + b) + c is not a + (b + c) in 32 bits. Then ranks "
               "train "
               "different models. Let one rank complete a part, and the others copy it.");
       }},
      {"each rank sends 2 (n - 1) / n of x",
       [] {
         for (const int n : {2, 3, 4, 8}) {
           const learn::Played game = played(n, 24);
           learn::expect_sent(game, 2 * (n - 1) * 24 / n,
                              "A step sends one part of the n, and not all of x.");
         }
       }},
      {"in 2 (n - 1) steps",
       [] {
         for (const int n : {2, 3, 4, 8})
           learn::expect_steps(played(n, 24), 2 * (n - 1),
                               "A step can send one part and receive another at the same time.");
       }},
      {"to one neighbour",
       [] {
         for (const int n : {3, 4, 8}) neighbours(n);
       }},
  });
}
