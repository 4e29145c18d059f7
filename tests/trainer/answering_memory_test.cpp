// What a model takes on each of the ranks that share it while it answers and is evaluated.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/pass_group.h"
#include "keel/trainer/trained_model.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// Bytes of a run's weights in fp32: of its blocks, which are units, and of what is in no block.
struct WeightBytes {
  std::vector<std::size_t> blocks;
  std::size_t rest = 0;

  std::size_t all() const { return std::accumulate(blocks.begin(), blocks.end(), rest); }
  // What a rank needs that has its share of each unit and two whole ones; shares are rounded up to 512 bytes.
  std::size_t share_and_two_units(int n) const {
    const auto shares = [n](std::size_t bytes) {
      const std::size_t step = static_cast<std::size_t>(n) * 512;
      return (bytes + step - 1) / step * step;
    };
    std::size_t padded = shares(rest);
    for (const std::size_t block : blocks) padded += shares(block);
    return padded / static_cast<std::size_t>(n) + 2 * shares(*std::ranges::max_element(blocks)) + shares(rest);
  }
};

WeightBytes bytes_of_weights(const Config& config) {
  WeightBytes bytes;
  std::map<std::string, std::size_t> blocks;
  for (const TensorPart& tensor : read_manifest(RunFolder(config.run).checkpoint(1)).tensors_of("weights")) {
    const auto size = static_cast<std::size_t>(product(tensor.shape)) * sizeof(float);
    const std::size_t number = tensor.name.find_first_of("0123456789");
    if (number == std::string::npos) bytes.rest += size;
    else blocks[tensor.name.substr(0, tensor.name.find('.', number))] += size;
  }
  for (const auto& [name, size] : blocks) bytes.blocks.push_back(size);
  return bytes;
}

// The most that a rank has of weights, its own and those that it has gathered, over loading, evaluation and an answer.
std::size_t peak_of_a_rank(const Config& config, int n, const std::string& strategy) {
  std::size_t peak = 0;
  std::mutex mutex;
  run_ranks(n, [&](Communicator& ranks) {
    TrainedModel trained({.path = config.run, .strategy = strategy}, ranks, [](LogLevel, std::string_view) {});
    EXPECT_EQ(evaluate_run(trained).sets.size(), 1u);
    const NoGrad no_grad;
    PassGroup group(ranks);
    Forward pass{.training = false, .random = {}, .sample_ids = {}, .dtype = trained.dtype(), .group = &group};
    std::string said;
    trained.task().answer("line", {.tokens = 5, .temperature = 0}, pass, [&](std::string_view text) { said += text; });
    EXPECT_FALSE(said.empty());
    const MemoryReport memory = trained.context().memory();
    const std::lock_guard lock(mutex);
    peak = std::max(peak, memory[Purpose::parameter].peak + memory[Purpose::bucket].peak);
  });
  return peak;
}

TEST(AnsweringMemory, OfAShardedModelIsAShareOfItAndTwoUnits) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run", {"steps=1", "scheduler.warmup=0", "model.layers=8", "model.width=32", "eval.every=1"});
  train_by(2, config);
  const WeightBytes bytes = bytes_of_weights(config);
  ASSERT_EQ(bytes.blocks.size(), 8u);
  for (const int n : {2, 3, 4}) {
    EXPECT_LE(peak_of_a_rank(config, n, "zero3-fp32"), bytes.share_and_two_units(n)) << n;
    EXPECT_GE(peak_of_a_rank(config, n, "ddp-fp32"), bytes.all()) << n;
  }
  // So a model answers that no rank has room for.
  EXPECT_LT(peak_of_a_rank(config, 4, "zero3-fp32"), bytes.all() * 6 / 10);
}

}  // namespace
}  // namespace keel
