#include "learn/behind/cuda.h"
#include "learn/behind/memory_watch.h"

__global__ void sum(learn::Global<const float> x, learn::Global<float> sums, int rows, int columns);

namespace {

const char* const kRounds =
    "Each round reads what other threads wrote in the round before. That they are of one warp gives them no "
    "order: "
    "since Volta, of 2017, its threads need not step together. There __syncwarp() is barrier enough. Between "
    "warps it "
    "must be __syncthreads().";

constexpr unsigned kThreads = 128;

void expect_sums(int rows, int columns, unsigned blocks) {
  const std::vector<float> numbers = learn::draw(std::int64_t{rows} * columns, 3, 0.0, 1.0);
  std::vector<double> expected;
  for (int r = 0; r < rows; ++r) {
    double all = 0;
    for (int i = 0; i < columns; ++i) all += numbers[static_cast<std::size_t>(r * columns + i)];
    expected.push_back(all);
  }
  const auto got = learn::in_all_orders("sums", [&] {
    learn::Array<float> x("x", numbers), sums("sums", std::int64_t{rows});
    learn::launch("sum", sum, blocks, kThreads, x, sums, rows, columns);
    return sums.read();
  });
  for (std::size_t r = 0; r < got.size(); ++r)
    if (!(std::abs(got[r] - expected[r]) <= 1e-5 * expected[r]))
      learn::wrong("The {} numbers of row {} add up to {:.6f}, and sums[{}] is {:.6f}.{}", columns, r,
                   expected[r], r, got[r],
                   got[r] < expected[r]
                       ? " The numbers are positive. Only some of its numbers were added: is the last "
                         "round the one with half = 1?"
                       : "");
}

void expect_shared_out() {
  learn::Array<float> x("x", learn::draw(1000, 4)), sums("sums", std::int64_t{1});
  const learn::MemoryWatch watch;
  learn::launch("sum", sum, 1, kThreads, x, sums, 1, 1000);
  if (watch.most_reads_of_a_thread() > 8)
    learn::wrong(
        "One thread reads {} of the row's 1000 numbers, and 8 are enough where 128 threads share them. The "
        "work of a "
        "row must be shared out, or there is no use in a GPU.",
        watch.most_reads_of_a_thread());
}

}  // namespace

int main() {
  return learn::run({
      {"a row is added up without a race",
       [] {
         learn::explain({{"race on shared memory", kRounds}, {"has written yet", kRounds}},
                        [] { expect_sums(1, 128, 1); });
       }},
      {"a block takes several rows without a race",
       [] {
         learn::explain(
             {{"race on shared memory",
               "The next row begins while a thread still reads the last round of this one: partial is used "
               "again."}},
             [] {
               expect_sums(3, 128, 1);
               expect_sums(7, 128, 2);
             });
       }},
      {"rows of any length are added up",
       [] {
         for (const int columns : {1, 100, 129, 1000}) expect_sums(3, columns, 2);
       }},
      {"the threads share the work", expect_shared_out},
  });
}
