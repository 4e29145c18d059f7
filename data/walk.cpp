#include "keel/data/walk.h"

#include <algorithm>
#include <numeric>

#include "keel/runtime/context.h"
#include "keel/runtime/parallel.h"

namespace keel {
namespace {

constexpr std::int64_t kExamplesOfAThread = 128;

}  // namespace

void walk(const Dataset& data, const std::function<void(std::int64_t first, std::vector<Example> examples)>& take,
          const std::function<void(std::int64_t begin, std::int64_t end)>& end_round) {
  const Context context = Context::create();
  for (std::int64_t begin = 0; begin < data.size(); begin += kWalkRound) {
    const std::int64_t count = std::min(kWalkRound, data.size() - begin);
    parallel_for(context, count, kExamplesOfAThread, [&](std::int64_t first, std::int64_t end) {
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(end - first));
      std::iota(numbers.begin(), numbers.end(), begin + first);
      take(begin + first, data.examples(numbers));
    });
    end_round(begin, begin + count);
  }
}

}  // namespace keel
