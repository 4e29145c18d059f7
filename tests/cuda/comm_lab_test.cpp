// What `keel comm` measures between devices: every collective and algorithm, by NCCL and through the processors.

#include "keel/dist/comm/staged_communicator.h"
#include "keel/dist/lab/contestant.h"
#include "keel/dist/lab/measurement.h"
#include "tests/cuda/nccl_ranks.h"

namespace keel::lab {
namespace {

using namespace keel::testing;

class CommLab : public NcclRanks {
 protected:
  static void measure_all(const DeviceRank& own, Path path) {
    const Fabric fabric{own.hosts, own.context, path};
    const std::vector<double> clocks = clock_offsets(own.hosts);
    for (const Contestant& contestant : algorithm_names()) {
      std::string why;
      const auto entered = enter(contestant, fabric, why);
      if (entered == nullptr) continue;
      for (const Exercise& exercise : exercises())
        for (const DType dtype : {DType::f32, DType::bf16})
          for (const bool in_place : {false, true}) {
            if (!(in_place ? exercise.in_place : exercise.out_of_place)) continue;
            if (!why_not(contestant, exercise, path).empty()) continue;
            const std::int64_t most = 2 * own.size() + 1, bytes = most * static_cast<std::int64_t>(size_of(dtype));
            const std::int64_t count = count_in(exercise, bytes, dtype, own.size());
            const Tensor a = zeros(own.context, {most}, dtype), b = zeros(own.context, {most}, dtype);
            const Call call = make_call(exercise, own.hosts, count, in_place, a, b);
            const Timing timing = measure(*entered, own.hosts, call, {.calls = 2, .warmup = 1, .seconds = 0}, clocks);
            EXPECT_EQ(timing.wrong, std::optional<std::int64_t>(0))
                << exercise.name << ' ' << contestant.name << ' ' << dtype << (in_place ? " in place" : "");
          }
    }
  }
};

TEST_F(CommLab, ResultsAreExactBetweenDevicesByNccl) {
  KEEL_NEEDS_DEVICES(2);
  for (const int n : {2, 3}) {
    if (n > most()) continue;
    on_devices(n, [](const DeviceRank& own) { measure_all(own, Path::nccl); });
  }
}

TEST_F(CommLab, ResultsAreExactBetweenDevicesThroughTheirProcessors) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2, [](const DeviceRank& own) { measure_all(own, Path::staged); });
}

// What stays in a device's stream is late; a check that did not wait for it would find what was there before.
TEST_F(CommLab, OneRankMeasuresItsOwnDevice) {
  on_devices(1, [](const DeviceRank& own) {
    const Tensor a = zeros(own.context, {100}), b = zeros(own.context, {100});
    const Call call = make_call(find_exercise("all_reduce"), own.hosts, 100, false, a, b);
    const Timing timing = measure(own.devices, own.hosts, call, {.calls = 2, .warmup = 1, .seconds = 0}, {0});
    EXPECT_EQ(timing.wrong, std::optional<std::int64_t>(0));
    EXPECT_EQ(timing.straggler, -1);
  });
}

}  // namespace
}  // namespace keel::lab
