// How much memory loading takes beside what it fills, by ranks that are processes.

#include <gtest/gtest.h>

#include <sstream>

#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/dist/checkpoint/resident.h"
#include "tests/dist/comm/forked_ranks.h"

namespace keel {
namespace {

using namespace testing;

// Five units of 16 MiB in fp32, and their biases.
struct WideNet : Module {
  static constexpr std::int64_t kNumbers = 2048;
  struct Layer : Module {
    Linear linear{kNumbers, kNumbers};
    void visit(Visitor& v) override { v("linear", linear); }
    bool is_unit() const override { return true; }
  };
  std::vector<Layer> layers = std::vector<Layer>(5);
  void visit(Visitor& v) override { v("layers", layers); }
};
constexpr std::int64_t kUnitBytes = WideNet::kNumbers * (WideNet::kNumbers + 1) * 4, kMiB = 1 << 20;

class LoadMemory : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, LoadMemory, ::testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return concat("Stage", info.param); });

TEST_P(LoadMemory, BesideWhatARankOwnsIsAtMostAUnitAnd64MiB) {
  if (!kCountsResident) GTEST_SKIP() << "a sanitizer keeps memory that was given back";
  const TemporaryFolder place;
  const auto with_engine = [&](Communicator& ranks, const std::function<void(Sharded&)>& f) {
    WideNet net;
    Sharded engine(net, testing::context(1), ranks, make_adamw({}), bf16_stage(GetParam()));
    f(engine);
  };
  for (const ForkedEnd& end : run_forked(4, {}, [&](Communicator& ranks) {
         with_engine(ranks, [&](Sharded& engine) { save_checkpoint(place / "c", engine, ranks, {{"step", 0}}); });
         return std::string();
       }))
    ASSERT_TRUE(end.is_fine()) << end.text;
  ASSERT_GE(read_manifest(place / "c").bytes(), 15u * kUnitBytes) << "masters and two moments";
  // Without memory that ranks share, whose pages the system counts once for each of them.
  for (const ForkedEnd& end : run_forked(3, {.shared_memory = false}, [&](Communicator& ranks) {
         std::string measured;
         with_engine(ranks, [&](Sharded& engine) {
           const Manifest manifest = read_manifest(place / "c");
           const std::int64_t before = of_process("VmRSS");
           const auto counted = static_cast<std::int64_t>(engine.context().memory().total.current);
           engine.context().allocator().reset_peaks();
           forget_peak();
           load_checkpoint(place / "c", manifest, engine, ranks);
           measured = concat(of_process("VmHWM") - before, ' ',
                             static_cast<std::int64_t>(engine.context().memory().total.peak) - counted);
         });
         return measured;
       })) {
    ASSERT_TRUE(end.is_fine()) << end.text;
    std::istringstream text(end.text);
    std::int64_t resident = 0, counted = 0;
    text >> resident >> counted;
    EXPECT_GT(resident, 4 * kMiB) << "it is measured";
    EXPECT_LE(resident, kUnitBytes + 64 * kMiB);
    EXPECT_LE(counted, kUnitBytes + 64 * kMiB);
  }
}

}  // namespace
}  // namespace keel
