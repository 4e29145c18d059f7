// philox: random numbers that anybody can compute alone
//
// An ordinary generator has a state: the millionth number comes after all those before it. With many threads,
// and with ranks that come and go, nobody knows who has drawn what. A counter-based generator is a function:
// it scrambles a counter under a key, and the i-th number is that of counter i. Philox 4x32-10 (Salmon,
// Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") is one. The counter is four
// words c0 to c3 of 32 bits, the key two, low and high. Each of its 10 rounds makes
//
//   product0 = 0xD2511F53 c0        product1 = 0xCD9E8D57 c2        of 64 bits each, then at once
//   c0 = upper half of product1 ^ c1 ^ low         c1 = lower half of product1
//   c2 = upper half of product0 ^ c3 ^ high        c3 = lower half of product0
//
// Between two rounds low grows by 0x9E3779B9 and high by 0xBB67AE85, modulo 2^32.
//
// Write three functions:
//   philox()   the four words c0 to c3 after 10 rounds.
//   uniform()  a number of [0, 1) from one word: its upper 24 bits, as a multiple of 2^-24. It is never 1.
//   dropout()  of x, a piece of a longer row: x[0] is number `first` of the row. With the probability p y[i]
//              is 0, otherwise it is x[i] / (1 - p).
//
// Who decides about number n of the row is word n % 4 of the counter (lower half of n / 4, upper half of
// n / 4, 0, 0). The number becomes 0 if uniform() of that word is below p.
//
// So the row is the same, however it is cut into pieces. To read afterwards: runtime/random.h, which is
// keel's.

#include "learn/given/philox.h"
#include "learn/given/row.h"

learn::Words philox(learn::Words counter, learn::Key key) {
  return counter;  // Your code.
}

float uniform(std::uint32_t word) {
  return 0;  // Your code.
}

void dropout(learn::In x, std::uint64_t first, float p, learn::Key key, learn::Out y) {
  // Your code.
}
