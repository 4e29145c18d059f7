// Compressed gradients of devices: the laws, through NCCL and through the processors' memory, and the processor's bits.

#include "keel/dist/comm/staged_communicator.h"
#include "keel/dist/parallel/reducer.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/compression_laws.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

using Body = std::function<void(Communicator&, const Context&)>;

// The devices of NcclRanks, for suites that are none.
struct Devices : NcclRanks {
  using NcclRanks::most;
  static void run(int n, const Body& f, bool staged, std::uint64_t drain_seed) {
    on_devices(n,
               [&](const DeviceRank& own) {
                 if (!staged) return f(own.devices, own.context);
                 const auto through_hosts = make_staged_communicator(own.hosts.split(0, own.rank()));
                 f(*through_hosts, own.context);
               },
               {.drain_seed = drain_seed});
  }
  static std::string why_not() {
    if (const std::string why = why_no_nccl(); !why.empty()) return why;
    return most() < 4 ? concat("needs 4 devices, there are ", most()) : "";
  }
};

// Short, for the emulator. A seed lets work happen in any order that events allow.
World world_of(const std::string& name, bool staged, std::uint64_t drain_seed, const std::vector<int>& ranks) {
  World world{.name = name,
              .run = [=](int n, const Body& f) { Devices::run(n, f, staged, drain_seed); },
              .ranks = ranks,
              .steps = 3,
              .width = 16,
              .layers = 3,
              .why_not = Devices::why_not()};
#ifdef KEEL_EMULATED
  world.leave = [] { emulation::Machine::get().reset({}); };
#endif
  return world;
}

INSTANTIATE_TEST_SUITE_P(Among, CompressionLaws,
                         ::testing::Values(world_of("Devices", false, 5, {2}), world_of("StagedDevices", true, 5, {3})),
                         [](const auto& info) { return info.param.name; });

class DeviceCompressor : public NcclRanks {};

// What a reducer is told of a unit as stage 0 (`whole`) or 1 has it.
struct ReducedUnit {
  ReducedUnit(Module& model, const Context& context, Communicator& ranks, const Compression& compression, bool whole)
      : layout(lay_out(model, ranks.size()).front()),
        options(stage(whole ? 0 : 1)),
        times(context),
        site({options, times, context, {ranks}}, 0, layout, split) {
    options.compression = compression;
    split = split_unit(layout, options, {.ranks = ranks.size(), .rank = ranks.rank()});
  }

  FlatBuffer layout;
  ShardedOptions options;
  EngineTimes times;
  UnitSplit split = {};
  UnitSite site;
};

// What a compressor delivers and leaves in some steps, of which one is not taken.
std::vector<std::vector<double>> compressed(const Context& context, Communicator& ranks, Module& model,
                                            const Compression& compression, bool whole, double scale) {
  ReducedUnit unit(model, context, ranks, compression, whole);
  const FlatBuffer& layout = unit.layout;
  Reducer reducer(unit.site);
  std::vector<std::vector<double>> seen;
  for (int step = 0; step < 3; ++step) {
    const Tensor gradient = zeros(context, {layout.padded});
    const auto seed = 10 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(ranks.rank());
    kernels::copy_into(gradient.slice(0, 0, layout.numel), uniform_tensor(context, {layout.numel}, seed));
    reducer.begin(gradient, scale, {});
    reducer.proceed();
    seen.push_back(doubles(reducer.finish()));
    reducer.end_step(step != 1);
    seen.push_back(doubles(reducer.feedback()->residual()));
  }
  return seen;
}

TEST_F(DeviceCompressor, HasTheBitsOfTheProcessors) {
  KEEL_NEEDS_DEVICES(2);
  for (const int n : {2, 3, 4}) {
    if (n > most()) continue;
    on_devices(n, [](const DeviceRank& own) {
      const Context host = testing::context(1);
      for (const Compression& compression : {kInt8, kInt4, top_k_of(0.03), top_k_of(1), kPowerSgd})
        for (const bool whole : {false, true}) {
          UnitNet net(32, 1);
          const double scale = whole ? 1 : 64;
          const auto there = compressed(own.context, own.devices, net, compression, whole, scale);
          const auto here = compressed(host, own.hosts, net, compression, whole, scale);
          const bool is_exact = compression.type != Compression::Type::power_sgd;
          for (std::size_t i = 0; i < here.size(); ++i) {
            if (is_exact) {
              EXPECT_TRUE(there[i] == here[i]) << text_of(compression) << ", " << i;
            } else {
              EXPECT_LT(relative_error(there[i], here[i]), 1e-5) << i;
            }
          }
        }
    });
  }
}

// Checkpoints hold what is left of gradients in the memory of devices.
TEST_F(DeviceCompressor, GoesOnFromACheckpointToTheSameBits) {
  KEEL_NEEDS_DEVICES(2);
  for (const char* compression : {"{type: int8}", "{type: powersgd, rank: 2}"}) {
    const TemporaryFolder place;
    const auto run = [&](const std::string& name, std::int64_t stop_after, const std::vector<std::string>& more = {}) {
#ifdef KEEL_EMULATED
      emulation::Machine::get().reset({.devices = 2});
#endif
      std::vector<std::string> settings = {kTestDevice.type == DeviceType::cuda ? "device=cuda" : "device=emulated",
                                           concat("gradient_compression=", compression),
                                           "strategy=zero2-bf16",
                                           "steps=4",
                                           "model.layers=1",
                                           "model.block=8",
                                           "batch.global=2",
                                           "batch.micro=1",
                                           "eval.every=0",
                                           "eval.batches=1",
                                           "checkpoint.every=2"};
      settings.insert(settings.end(), more.begin(), more.end());
      const Config config = small_run(place, name, settings);
      run_ranks(2, [&](Communicator& ranks) {
        Recorder recorder(stop_after);
        train(config, recorder, ranks);
      });
      return weights_of(config);
    };
    const std::string whole = run("whole", 1000);
    run("parts", 2);
    bool is_kept = false;
    for (const auto& file : std::filesystem::recursive_directory_iterator(place / "parts"))
      is_kept = is_kept || file.path().filename() == "compression-1-of-2.safetensors";
    EXPECT_TRUE(is_kept);
    EXPECT_EQ(run("parts", 1000, {"resume=auto"}), whole) << compression;
  }
}

// A device's time is that of its stream, which is known once it has passed.
TEST_F(DeviceCompressor, CountsTheTimeOfTheDevice) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2, [](const DeviceRank& own) {
    UnitNet net(32, 1);
    ReducedUnit unit(net, own.context, own.devices, kInt8, false);
    const WorkTimer& codec = unit.times.codec;
    Reducer reducer(unit.site);
    EXPECT_EQ(codec.milliseconds(), 0);
    reducer.begin(zeros(own.context, {unit.layout.padded}), 1, {});
    reducer.finish();
    own.context.synchronize();
    const double once = codec.milliseconds();
    EXPECT_GT(once, 0);
    EXPECT_EQ(codec.milliseconds(), once);
  });
}

}  // namespace
}  // namespace keel
