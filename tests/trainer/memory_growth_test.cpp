// Memory that grows from step to step is told, and nothing else.

#include "keel/trainer/memory_growth.h"

#include <gtest/gtest.h>

#include <tuple>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/trainer/config_keys.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

constexpr std::size_t kMegabyte = 1000000;
constexpr std::int64_t kNothingOfItsOwn = 0;

// What is told after each of so many steps, in which `bytes(step)` are activations.
template <class F>
std::vector<std::string> told_of(std::int64_t window, std::int64_t steps, const F& bytes) {
  MemoryGrowth growth(window);
  std::vector<std::string> told;
  for (std::int64_t step = 1; step <= steps; ++step) {
    MemoryReport memory{};
    memory.by_purpose[static_cast<std::size_t>(Purpose::activation)].current = bytes(step);
    memory.by_purpose[static_cast<std::size_t>(Purpose::parameter)].current = 50 * kMegabyte;
    if (const std::string text = growth.note(memory, [] { return kNothingOfItsOwn; }); !text.empty())
      told.push_back(concat(step, ": ", text));
  }
  return told;
}

TEST(MemoryGrowth, IsToldOnceWithWhatGrew) {
  const auto told =
      told_of(10, 200, [](std::int64_t step) { return 10 * kMegabyte + static_cast<std::size_t>(step) * kMegabyte; });
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].find("40: memory grows: what is kept as activation from "), 0u) << told[0];
  EXPECT_NE(told[0].find(" in 30 steps"), std::string::npos);
  EXPECT_EQ(told[0].find("parameter"), std::string::npos);
}

TEST(MemoryGrowth, IsNotWhatComesAndGoesOrSettlesOrIsSmall) {
  const auto none = std::vector<std::string>();
  EXPECT_EQ(told_of(10, 200, [](std::int64_t step) { return (step % 10 == 0 ? 1 : 1 + step % 7) * kMegabyte; }), none);
  EXPECT_EQ(told_of(10, 200, [](std::int64_t step) { return std::min<std::size_t>(step, 15) * kMegabyte; }), none);
  EXPECT_EQ(told_of(10, 200, [](std::int64_t step) { return 9 * kMegabyte + 100 * step; }), none);
  EXPECT_EQ(told_of(10, 39, [](std::int64_t step) { return step * kMegabyte; }), none) << "three windows after one";
  EXPECT_EQ(told_of(0, 200, [](std::int64_t step) { return step * kMegabyte; }), none);
}

// In three windows by a hundredth at least, and by a mebibyte; the process by a twentieth, and by 32 mebibytes.
TEST(MemoryGrowth, IsWorthTellingByItsPartOfWhatThereWas) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  const auto is_told = [](std::int64_t first, std::int64_t grown, bool is_process) {
    MemoryGrowth growth(1);
    std::string text;
    for (std::int64_t step = 0; step <= 3; ++step) {
      const std::int64_t bytes = first + (step == 3 ? grown : step);
      MemoryReport memory{};
      if (!is_process) memory.by_purpose[0].current = static_cast<std::size_t>(bytes);
      text += growth.note(memory, [&] { return is_process ? bytes : kNothingOfItsOwn; });
    }
    return !text.empty();
  };
  for (const auto& [first, least, is_process] : {std::tuple(std::int64_t{1000}, kMebibyte, false),
                                                 {99 * kMebibyte, kMebibyte, false},
                                                 {300 * kMebibyte, 3 * kMebibyte, false},
                                                 {1000, 32 * kMebibyte, true},
                                                 {600 * kMebibyte, 32 * kMebibyte, true},
                                                 {1000 * kMebibyte, 50 * kMebibyte, true}}) {
    EXPECT_TRUE(is_told(first, least, is_process)) << first;
    EXPECT_FALSE(is_told(first, least - 1, is_process)) << first;
  }
}

TEST(MemoryGrowth, OfTheProcessIsToldWhereKeelCountsNone) {
  const auto told = [](std::size_t counted) {
    MemoryGrowth growth(1);
    std::int64_t own = 0;
    std::string text;
    for (int step = 1; step <= 9; ++step) {
      MemoryReport memory{};
      memory.by_purpose[0].current = counted * static_cast<std::size_t>(step);
      own += 20 * kMegabyte;
      text += growth.note(memory, [&] { return own; });
    }
    return text;
  };
  EXPECT_EQ(told(0).find("memory grows: that of the process from "), 0u) << told(0);
  EXPECT_EQ(told(20 * kMegabyte).find("memory grows: what is kept as parameter from "), 0u);
}

// Keeps what it is told to, for ever.
class Hoard : public Task {
 public:
  explicit Hoard(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    const auto ones = [](std::int64_t) { return Example().set("x", Numbers{{64}, std::vector<float>(64, 1)}); };
    return make_data(site_, made_dataset(64, "ones", ones), 0.25, stack());
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable out = net_(input(batch, "x", pass), pass);
    if (site_.settings.flag("task.keeps")) kept_.push_back(out.value());
    return mean(square(out));
  }

 private:
  TaskSite site_;
  Linear net_{64, 16384};
  std::vector<Tensor> kept_;
};

TEST(MemoryGrowth, OfARunNamesTheTensorsThatATaskKeeps) {
  static const auto keys =
      keys_of_task<Hoard>("hoard", {{.key = "task.keeps", .type = KeyType::flag, .standard = "false", .help = "All."}});
  const TemporaryFolder place;
  for (const char* keeps : {"true", "false"}) {
    const Config config = task_run(keys, R"(
steps: 14
batch: {global: 4, micro: 4}
optimizer: {lr: 1e-3}
eval: {every: 3}
checkpoint: {every: 4, async: true}
log: {memory_growth: 3}
threads: 1
)",
                                   place, keeps, {concat("task.keeps=", keeps)});
    Recorder told;
    train(config, told);
    EXPECT_EQ(told.messages.find("step 12: memory grows: what is kept as activation") != std::string::npos,
              keeps == std::string_view("true"))
        << told.messages;
  }
}

}  // namespace
}  // namespace keel
