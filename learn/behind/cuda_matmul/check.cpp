#include "learn/behind/cuda.h"
#include "learn/behind/memory_watch.h"

__global__ void matmul(learn::Global<const float> a, learn::Global<const float> b, learn::Global<float> c,
                       int m, int n, int k);

namespace {

constexpr int kTile = 16;
const dim3 kBlock(kTile, kTile);

struct Sizes {
  int m, n, k;
};

dim3 grid_of(const Sizes& s) {
  return {unsigned(s.n + kTile - 1) / kTile, unsigned(s.m + kTile - 1) / kTile};
}

// Number (i, j) of the product of columns [from, to) of a and rows [from, to) of b.
double number_of(const std::vector<float>& a, const std::vector<float>& b, const Sizes& s, int i, int j,
                 int from, int to) {
  double sum = 0;
  for (int p = from; p < to; ++p)
    sum += double{a[static_cast<std::size_t>(i * s.k + p)]} * b[static_cast<std::size_t>(p * s.n + j)];
  return sum;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-4; }

void expect_product(const Sizes& s) {
  const std::vector<float> of_a = learn::draw(std::int64_t{s.m} * s.k, 8),
                           of_b = learn::draw(std::int64_t{s.k} * s.n, 9);
  const auto got = learn::in_all_orders("c", [&] {
    learn::Array<float> a("a", of_a), b("b", of_b), c("c", std::int64_t{s.m} * s.n);
    learn::launch("matmul", matmul, grid_of(s), kBlock, a, b, c, s.m, s.n, s.k);
    return c.read();
  });
  for (int i = 0; i < s.m; ++i)
    for (int j = 0; j < s.n; ++j) {
      const double x = got[static_cast<std::size_t>(i * s.n + j)],
                   expected = number_of(of_a, of_b, s, i, j, 0, s.k);
      if (near(x, expected)) continue;
      const int full = s.k / kTile * kTile, last = (s.k - 1) / kTile * kTile;
      const char* why = "";
      if (full != s.k && near(x, number_of(of_a, of_b, s, i, j, 0, full)))
        why = "\nThe last tile along k, which is not full, is missing: k / kTile is rounded down.";
      else if (full != s.k && full != 0 &&
               near(x - expected, number_of(of_a, of_b, s, i, j, s.k - kTile, full)))
        why =
            "\nIn the last step, places of the tile that lie outside of a and b still have what the step "
            "before left "
            "there. Its place in the tile must become 0 where a number does not exist.";
      else if (last != 0 && near(x, number_of(of_a, of_b, s, i, j, last, s.k)))
        why =
            "\nThat is what the last step along k gives alone. The tiles of a row of c add up: the sum must "
            "not begin "
            "anew at each step.";
      else if (last != 0 && near(x, number_of(of_a, of_b, s, i, j, 0, kTile)))
        why = "\nThat is what the first step along k gives alone.";
      learn::wrong(
          "m, n and k are {}, {} and {}. Row {}, column {} of c is {:.6f}, and {:.6f} was expected.{}", s.m,
          s.n, s.k, i, j, x, expected, why);
    }
}

void expect_few_reads() {
  const Sizes s{32, 48, 32};
  learn::Array<float> a("a", learn::draw(s.m * s.k, 10)), b("b", learn::draw(s.k * s.n, 11)),
      c("c", std::int64_t{s.m * s.n});
  const learn::MemoryWatch watch;
  learn::launch("matmul", matmul, grid_of(s), kBlock, a, b, c, s.m, s.n, s.k);
  const std::int64_t enough = std::int64_t{s.m} * s.k * (s.n / kTile);
  if (a.counts().reads() > enough)
    learn::wrong(
        "a has {} numbers, and {} rows of tiles of c need each of them {} times, {} reads in all. It is read "
        "{} times. "
        "Each number must come through a tile in shared memory, which all threads of the block read.",
        a.size(), s.m / kTile, s.n / kTile, enough, a.counts().reads());
  watch.expect_coalesced("threadIdx.x must run along a row of a and of b.");
}

const char* const kFull =
    "The tiles must be full before anybody multiplies: a thread reads what others loaded.";
const char* const kEdge =
    "Not each thread of a block at the edge has its numbers. What lies outside counts as 0 and must not be "
    "read.";
const char* const kStay =
    "A thread without a number of c still loads for the others, and it must stay for the barriers. Only its "
    "write is "
    "left out.";

}  // namespace

int main() {
  return learn::run({
      {"one tile",
       [] {
         learn::explain({{"race on shared memory", kFull}, {"has written yet", kFull}}, [] {
           expect_product({kTile, kTile, kTile});
         });
       }},
      {"several tiles along k",
       [] {
         learn::explain(
             {{"race on shared memory",
               "The next step fills the tiles while a thread still multiplies with those of this one."},
              {"has written, too", "A number of c is made by one thread."}},
             [] {
               expect_product({kTile, kTile, 4 * kTile});
             });
       }},
      {"several tiles of c",
       [] {
         expect_product({2 * kTile, 3 * kTile, 2 * kTile});
       }},
      {"sizes that are no multiples of a tile",
       [] {
         learn::explain(
             {{"the last is", kEdge},
              {"for the block at", kStay},
              {"has written yet",
               "This number lies outside of a or b. Its place in the tile must become 0, or what was there "
               "before is multiplied."}},
             [] {
               expect_product({kTile, kTile, 19});
               expect_product({kTile, 21, kTile});
               expect_product({20, 35, 40});
               expect_product({1, 1, 1});
             });
       }},
      {"a number is read from memory once for a tile of c", expect_few_reads},
  });
}
