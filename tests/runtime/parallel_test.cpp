#include "keel/runtime/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::context;
using Chunk = std::pair<std::int64_t, std::int64_t>;

std::multiset<Chunk> chunks_of(const Context& context, std::int64_t n, std::int64_t grain) {
  std::multiset<Chunk> chunks;
  std::mutex mutex;
  parallel_for(context, n, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    chunks.insert({begin, end});
  });
  return chunks;
}

TEST(ParallelFor, ChunksFollowFromLengthAndGrainAlone) {
  for (const std::int64_t n : {0, 1, 9, 10, 11, 1000})
    for (const std::int64_t grain : {1, 3, 10, 2000}) {
      std::multiset<Chunk> expected;
      for (std::int64_t begin = 0; begin < n; begin += grain) expected.insert({begin, std::min(n, begin + grain)});
      for (const int threads : {1, 2, 3, 7}) EXPECT_EQ(chunks_of(context(threads), n, grain), expected);
    }
  EXPECT_EQ(chunks_of(context(), 3, 0), chunks_of(context(), 3, 1));
  EXPECT_TRUE(chunks_of(context(), -5, 1).empty());
}

TEST(ParallelFor, RethrowsWhatAChunkThrewAndWorksAgain) {
  const Context cpu = context();
  for (const std::int64_t bad : {0, 57, 99}) {
    try {
      parallel_for(cpu, 100, 1, [&](std::int64_t begin, std::int64_t) {
        if (begin == bad) throw Error(concat("chunk ", begin));
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& error) { EXPECT_EQ(std::string(error.what()), concat("chunk ", bad)); }
  }
  EXPECT_EQ(chunks_of(cpu, 100, 1).size(), 100u);
}

TEST(ParallelFor, RunsInsideItself) {
  const Context cpu = context();
  std::atomic<std::int64_t> sum = 0;
  parallel_for(cpu, 50, 1, [&](std::int64_t outer, std::int64_t) {
    parallel_for(cpu, 100, 7, [&](std::int64_t begin, std::int64_t end) { sum += (end - begin) * outer; });
  });
  EXPECT_EQ(sum, 50 * 49 / 2 * 100);
}

}  // namespace
}  // namespace keel
