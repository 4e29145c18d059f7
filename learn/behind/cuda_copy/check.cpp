#include "learn/behind/cuda.h"
#include "learn/behind/memory_watch.h"

__global__ void copy(learn::Global<const float> from, learn::Global<float> to, int count);

namespace {

const char* const kStep =
    "A step of blockDim.x leads into the numbers of the next block. The step of the loop is the number of "
    "threads of "
    "the whole grid.";

void expect_copy(int count, unsigned blocks, unsigned threads) {
  const std::vector<float> x = learn::draw(count, 1);
  const auto y = learn::in_all_orders("to", [&] {
    learn::Array<float> from("from", x), to("to", std::int64_t{count});
    learn::launch("copy", copy, blocks, threads, from, to, count);
    return to.read();
  });
  for (std::size_t i = 0; i < x.size(); ++i)
    if (y[i] != x[i]) learn::wrong("to[{}] is {}, and from[{}] is {}.", i, y[i], i, x[i]);
}

void is_coalesced() {
  learn::Array<float> from("from", learn::draw(2048, 2)), to("to", std::int64_t{2048});
  const learn::MemoryWatch watch;
  learn::launch("copy", copy, 2, 128, from, to, 2048);
  watch.expect_coalesced(
      "Each thread copies a stretch of its own, so that neighbouring threads are far apart in memory. Let "
      "thread t of "
      "the grid begin at number t.");
}

}  // namespace

int main() {
  return learn::run({
      {"a block copies as many numbers as it has threads", [] { expect_copy(64, 1, 64); }},
      {"several blocks share the numbers",
       [] {
         learn::explain(
             {{"writes to[0], which",
               "Every block copies the same numbers: where a thread begins must depend on blockIdx.x."},
              {"has written, too", kStep}},
             [] { expect_copy(256, 4, 64); });
       }},
      {"threads that are too many do nothing",
       [] {
         learn::explain({{"the last is", "A thread whose number is count or more must do nothing."}}, [] {
           expect_copy(130, 3, 64);
           expect_copy(1, 2, 32);
         });
       }},
      {"threads that are too few take several numbers each",
       [] {
         learn::explain({{"was never written", "Each thread copies one number and no more. It needs a loop."},
                         {"has written, too", kStep}},
                        [] {
                          expect_copy(1000, 1, 96);
                          expect_copy(1000, 4, 64);
                          expect_copy(37, 5, 3);
                        });
       }},
      {"neighbouring threads take neighbouring numbers", is_coalesced},
  });
}
