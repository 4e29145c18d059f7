#include "learn/behind/cuda.h"
#include "learn/behind/memory_watch.h"

__global__ void warp_sum(learn::Global<const float> x, learn::Global<float> sums, int count);

namespace {

double sum_of(const std::vector<float>& x, std::size_t first, std::size_t step, std::size_t lanes) {
  double sum = 0;
  for (std::size_t lane = 0; lane < lanes; lane += step)
    if (first + lane < x.size()) sum += x[first + lane];
  return sum;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

void expect_sums(int count, unsigned blocks, unsigned threads) {
  const std::vector<float> numbers = learn::draw(count, 6, 0.5, 1.5);
  const auto got = learn::in_all_orders("sums", [&] {
    learn::Array<float> x("x", numbers), sums("sums", std::int64_t{(count + 31) / 32});
    learn::launch("warp_sum", warp_sum, blocks, threads, x, sums, count);
    return sums.read();
  });
  for (std::size_t w = 0; w < got.size(); ++w) {
    const double expected = sum_of(numbers, 32 * w, 1, 32);
    if (near(got[w], expected)) continue;
    const char* why = "";
    for (const std::size_t few : {2, 4, 8, 16})
      if (near(got[w], sum_of(numbers, 32 * w, 32 / few, 32)) ||
          near(got[w], sum_of(numbers, 32 * w, 1, few)))
        why =
            " A round is missing: that is the sum of some lanes alone. Rounds of 16, 8, 4, 2 and 1 lanes "
            "bring "
            "together all 32.";
    if (numbers.size() > 32 * w && got[w] == numbers[32 * w]) why = " That is the number of lane 0 alone.";
    learn::wrong(
        "There are {} numbers in blocks of {} threads. The numbers from x[{}] on add up to {:.6f}, and "
        "sums[{}] is {:.6f}.{}",
        count, threads, 32 * w, expected, w, got[w], why);
  }
}

void expect_no_memory() {
  learn::Array<float> x("x", learn::draw(64, 7)), sums("sums", std::int64_t{2});
  const learn::MemoryWatch watch;
  learn::launch("warp_sum", warp_sum, 1, 64, x, sums, 64);
  if (watch.most_reads_of_a_thread() > 1)
    learn::wrong("One thread reads {} numbers. Each should read its own, and hear of the others by shuffles.",
                 watch.most_reads_of_a_thread());
  if (watch.used_shared_memory())
    learn::wrong("The sum is right, but it went through shared memory. Within a warp, shuffles do without.");
}

const learn::Explanation kWriters = {"has written, too",
                                     "After rounds of __shfl_down_sync() lane 0 alone has the sum of all 32, "
                                     "and the others that of some. Lane 0 "
                                     "writes, to the place of its warp in the whole grid."};

}  // namespace

int main() {
  return learn::run({
      {"a warp adds up its 32 numbers",
       [] {
         learn::explain({{"mask", "The mask of a whole warp is 0xffffffff: a bit for each lane."}, kWriters},
                        [] { expect_sums(32, 1, 32); });
       }},
      {"each warp of each block has its own sum",
       [] {
         learn::explain({kWriters}, [] {
           expect_sums(128, 1, 128);
           expect_sums(192, 3, 64);
         });
       }},
      {"the last warp is not full",
       [] {
         learn::explain(
             {{"for its warp at",
               "The last warp has fewer numbers than lanes. A lane without a number must take part with 0."},
              {"not in its mask",
               "The mask has the lanes with a number alone, and the last lanes of the mask reach past its "
               "end. It is "
               "simpler if all lanes take part, those without a number with 0."},
              {"the last is", "A lane has a number only where its own number in the grid is below count."}},
             [] {
               for (const int count : {45, 33, 1, 31}) expect_sums(count, 1, 64 - (count < 32 ? 32 : 0));
               expect_sums(100, 2, 64);
             });
       }},
      {"a warp may have no numbers at all",
       [] {
         learn::explain(
             {{"uses sums[", "A warp without any number writes nothing: sums has no place for it."}}, [] {
               expect_sums(40, 1, 96);
               expect_sums(64, 2, 64);
             });
       }},
      {"each thread reads its own number, and shared memory is not used", expect_no_memory},
  });
}
