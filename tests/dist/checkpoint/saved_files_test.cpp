// Saves of numbers that lie in files: the bytes of a save from memory, and no more memory than a step's.

#include <gtest/gtest.h>

#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/runtime/faulty_file.h"

namespace keel {
namespace {

using namespace testing;

struct OfSave {
  std::map<std::string, std::string> files;
  std::vector<std::int64_t> peaks, planned;  // bytes in memory of what comes and goes, by rank
};

class SavesOfFiles : public ::testing::TestWithParam<int> {
 public:
  // Three steps and a save; with an asynchronous one, whose copies are made before and are not counted.
  OfSave save(int stage_number, const UpdateSettings& settings, std::int64_t budget, bool asynchronous) const {
    const int n = GetParam();
    const TemporaryFolder place;
    OfSave seen;
    seen.peaks.resize(static_cast<std::size_t>(n));
    seen.planned.resize(static_cast<std::size_t>(n));
    run_ranks(n, [&](Communicator& ranks) {
      ShardedOptions options = bf16_stage(stage_number);
      if (budget > 0) {
        ShardingOptions& sharding = options.sharding;
        sharding.offload_parameters = sharding.offload_gradients = sharding.offload_optimizer = Residence::file;
        sharding.offload_budget = budget;
        options.scratch_file = [](const std::string&) { return std::make_unique<FaultyFile>(); };
      }
      const auto optimizer = [&] { return make_elementwise("test", {.settings = settings}); };
      UnitNet planned;
      const RankPlan plan = plan_rank(lay_out(planned, shard_ranks(options, n), optimizer()->requirements().block),
                                      *optimizer(), options, n, ranks.rank());
      Trained rank(ranks, options, optimizer());
      rank.train(0, 3);
      AsyncSave save(rank.engine, ranks);
      rank.engine.wait_until_released();
      rank.engine.context().allocator().reset_peaks();
      if (asynchronous) {
        save.begin(place / "step", {{"step", 3}});
        save.finish();
      } else {
        save_checkpoint(place / "step", rank.engine, ranks, {{"step", 3}});
      }
      const auto me = static_cast<std::size_t>(ranks.rank());
      seen.peaks[me] = static_cast<std::int64_t>(rank.engine.context().memory()[Purpose::bucket].peak);
      seen.planned[me] = plan.memory.buckets;
    });
    seen.files = files_of(place / "step");
    return seen;
  }
};
INSTANTIATE_TEST_SUITE_P(ByRanks, SavesOfFiles, ::testing::Values(1, 2, 3));

TEST_P(SavesOfFiles, WriteTheBytesOfSavesFromMemoryAndHaveNoMoreInMemoryThanAStep) {
  constexpr std::int64_t kLittle = 60000, kMuch = 1 << 30;
  const std::pair<std::string, UpdateSettings> kOptimizers[] = {
      {"AdamW", AdamSettings{.decoupled = true}},
      {"AdamW in 8 bits", AdamSettings{.decoupled = true, .min_8bit_size = 4096}},
      {"Muon", MuonSettings{}}};
  for (const auto& [name, settings] : kOptimizers)
    for (const int stage_number : {0, 1, 3})
      for (const bool asynchronous : {false, true}) {
        if (asynchronous && name != "AdamW") continue;
        const OfSave in_memory = save(stage_number, settings, 0, asynchronous);
        for (const std::int64_t budget : {kLittle, kMuch}) {
          SCOPED_TRACE(concat(name, ", stage ", stage_number, ", budget ", budget, asynchronous ? ", aside" : ""));
          const OfSave in_files = save(stage_number, settings, budget, asynchronous);
          EXPECT_TRUE(in_files.files == in_memory.files);
          for (std::size_t rank = 0; rank < in_files.peaks.size(); ++rank) {
            EXPECT_GT(in_files.peaks[rank], stage_number == 0 && rank > 0 ? -1 : 0) << "rank " << rank;
            EXPECT_LE(in_files.peaks[rank], in_files.planned[rank]) << "rank " << rank;
            EXPECT_LE(in_files.peaks[rank], budget) << "rank " << rank;
          }
        }
      }
}

}  // namespace
}  // namespace keel
