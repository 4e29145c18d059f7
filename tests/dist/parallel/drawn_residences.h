#pragma once
// Steps whose numbers lie anywhere, drawn from a seed: what each kind of memory has at its peak, planned and counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>

#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/files_support.h"

namespace keel::testing {

struct DrawnCase {
  int net = 0, ranks = 1, number = 0;
  DType dtype = DType::bf16;
  std::int64_t micro_batches = 1;
  std::string optimizer = "AdamW";
  Residence of_state = Residence::device, of_weights = Residence::device, of_gradients = Residence::device;
  Accumulation accumulation = Accumulation::deferred;
  MatrixWork matrices = MatrixWork::dealt;
  WeightCode code = WeightCode::exact;
  int prefetch = 1;
  bool overlap = true, reshards = true, keeps_last = false;
  Compression::Type compression = Compression::Type::none;
  int group = 0, virtual_ranks = 0;
  bool wide_wire = false;
  std::int64_t persistence = 0, budget = kMuch;
  std::uint64_t drain_seed = 0;

  // Of a stage and a number of ranks up to 4.
  static DrawnCase draw(std::uint64_t seed, int number, int ranks) {
    std::mt19937_64 numbers(16 * seed + 4 * static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(ranks));
    const auto one_of = [&](const auto& all) { return all[numbers() % std::size(all)]; };
    constexpr std::array kPlaces = {Residence::device, Residence::host, Residence::file};
    DrawnCase each;
    each.drain_seed = seed;
    each.net = static_cast<int>(numbers() % 3);
    each.ranks = ranks;
    each.number = number;
    each.dtype = one_of(std::array{DType::f32, DType::bf16, DType::f16});
    each.micro_batches = one_of(std::array{1, 1, 2, 3});
    each.optimizer = one_of(std::array{"AdamW", "AdamW", "Muon", "Adafactor", "AdamW8bit", "LAMB"});
    each.of_state = one_of(kPlaces);
    each.of_weights = one_of(kPlaces);
    each.of_gradients = one_of(kPlaces);
    if (numbers() % 3 == 0) each.accumulation = Accumulation::each_backward;
    each.matrices = one_of(std::array{MatrixWork::dealt, MatrixWork::everyone});
    if (numbers() % 5 == 0) each.code = WeightCode::int8;
    each.prefetch = static_cast<int>(numbers() % 3);
    each.overlap = numbers() % 4 != 0;
    each.reshards = numbers() % 4 != 0;
    each.keeps_last = numbers() % 4 == 0;
    each.persistence = one_of(std::array{0, 0, 5000});
    each.budget = one_of(std::array<std::int64_t, 3>{160000, 400000, kMuch});
    if (numbers() % 6 == 0) each.compression = one_of(std::array{Compression::Type::int8, Compression::Type::top_k});
    if (numbers() % 6 == 0) each.group = 1 + static_cast<int>(numbers() % 2);
    if (numbers() % 6 == 0) each.virtual_ranks = 4;
    each.wide_wire = numbers() % 4 == 0;
    each.leave_out_what_is_refused();
    return each;
  }

  ShardedOptions options() const {
    ShardedOptions options = in_dtype(number, dtype, static_cast<int>(micro_batches));
    ShardingOptions& sharding = options.sharding;
    sharding.offload_optimizer = of_state;
    sharding.offload_parameters = of_weights;
    sharding.offload_gradients = of_gradients;
    sharding.accumulation = accumulation;
    sharding.matrices = matrices;
    sharding.weight_code = code;
    sharding.prefetch = prefetch;
    sharding.overlap = overlap;
    sharding.reshard_after_forward = reshards;
    sharding.keep_last_unit = keeps_last;
    sharding.persistence_threshold = persistence;
    sharding.offload_budget = budget;
    sharding.group = group;
    sharding.virtual_ranks = virtual_ranks;
    options.compression = {.type = compression};
    if (wide_wire) options.wire = DType::f32;
    if (dtype == DType::f16) options.loss_scale = 1024;
    return options;
  }
  std::unique_ptr<const Optimizer> make_optimizer() const {
    UpdateSettings settings = AdamSettings{.decoupled = true};
    if (optimizer == "Muon") settings = MuonSettings{.products = MuonProducts::fp32};
    if (optimizer == "Adafactor") settings = AdafactorSettings{.beta1 = 0.9};
    if (optimizer == "AdamW8bit") settings = AdamSettings{.decoupled = true, .min_8bit_size = 1024};
    if (optimizer == "LAMB") settings = LambSettings{};
    return make_elementwise("test", {.settings = settings, .weight_decay = 0.01});
  }
  std::string text() const {
    return concat("seed ", drain_seed, ": net ", net, ", stage ", number, ", ", ranks, " ranks, ", dtype, ", ",
                  micro_batches, " micro-batches ", name_of(accumulation), ", ", optimizer, " (", name_of(matrices),
                  ") on ", name_of(of_state), ", weights on ", name_of(of_weights), " as ",
                  kWeightCodes[static_cast<std::size_t>(code)], ", gradients on ", name_of(of_gradients), ", prefetch ",
                  prefetch, overlap ? "" : ", no overlap", reshards ? "" : ", not resharded",
                  keeps_last ? ", last kept" : "", ", persistence ", persistence, ", budget ", budget, ", compression ",
                  static_cast<int>(compression), ", groups of ", group, ", ", virtual_ranks, " virtual ranks",
                  wide_wire ? ", fp32 on the wire" : "");
  }

 private:
  void leave_out_what_is_refused() {
    if (of_weights != Residence::device && number < 3) code = WeightCode::exact;
    if (of_gradients != Residence::device && number == 0) accumulation = Accumulation::deferred;
    if (group > 0 && ranks % group != 0) group = 0;
    const bool sums_later = accumulation == Accumulation::deferred && compression == Compression::Type::none;
    if (virtual_ranks % ranks != 0 || group > 0 || !sums_later || code != WeightCode::exact ||
        of_gradients != Residence::device)
      virtual_ranks = 0;
  }
};

// Bytes of a rank: what it keeps, and peaks of what is there for a while, on the device and in the processor's memory.
struct TierBytes {
  std::int64_t parameter = 0, gradient = 0, optimizer = 0, buckets = 0, host = 0, host_buckets = 0, file = 0;
  std::int64_t moved = 0, read = 0, written = 0;  // in a step

  explicit TierBytes(const RankPlan& plan)
      : parameter(plan.memory.parameter),
        gradient(plan.memory.gradient),
        optimizer(plan.memory.optimizer),
        buckets(plan.memory.buckets),
        host(plan.memory.host),
        host_buckets(plan.memory.host_buckets),
        file(plan.memory.file),
        moved(plan.traffic.offload),
        read(plan.traffic.file_read),
        written(plan.traffic.file_written) {}
  // Of the last of several steps.
  TierBytes(const Sharded& engine, std::int64_t moved_before, const PageTraffic& before) {
    const Context& context = engine.context();
    const auto peak = [](const Context& where, Purpose purpose) {
      return static_cast<std::int64_t>(where.memory()[purpose].peak);
    };
    parameter = peak(context, Purpose::parameter);
    gradient = peak(context, Purpose::gradient);
    optimizer = peak(context, Purpose::optimizer);
    buckets = peak(context, Purpose::bucket);
    file = engine.file_bytes();
    moved = engine.offload_bytes() - moved_before;
    read = engine.file_traffic().read - before.read;
    written = engine.file_traffic().written - before.written;
    if (context.device().type == DeviceType::cpu) return;
    for (const Purpose kept : {Purpose::parameter, Purpose::gradient, Purpose::optimizer})
      host += peak(context.host(), kept);
    host_buckets = peak(context.host(), Purpose::bucket);
  }
  std::string text() const {
    return concat("parameter ", parameter, ", gradient ", gradient, ", optimizer ", optimizer, ", buckets ", buckets,
                  ", host ", host, ", there for a while ", host_buckets, ", file ", file, ", moved ", moved, ", read ",
                  read, ", written ", written);
  }
};

// Of one rank: trains three steps, and compares the last one's peaks with the plan.
template <class Net>
void expect_tiers_as_planned(const DrawnCase& each, const Context& context, Communicator& ranks) {
  ShardedOptions options = each.options();
  const bool on_device = context.device().type != DeviceType::cpu;
  Net net, laid;
  ShardedOptions planned_options = options;
  if (!on_device) planned_options.sharding = options.sharding.on_processor();
  const RankPlan plan =
      plan_rank(lay_out(laid, shard_ranks(planned_options, each.ranks), each.make_optimizer()->requirements().block),
                *each.make_optimizer(), planned_options, each.ranks, ranks.rank(), {.on_device = on_device});
  Sharded engine(net, context, ranks, each.make_optimizer(), options);
  PageTraffic before;
  std::int64_t moved = 0;
  for (int step = 0; step < 3; ++step) {
    before = engine.file_traffic();
    moved = engine.offload_bytes();
    context.allocator().reset_peaks();
    context.host().allocator().reset_peaks();
    const int passes = static_cast<int>(each.micro_batches) * engine.virtual_ranks();
    for (int pass = 0; pass < passes; ++pass) {
      const Tensor x = rows(context, step, ranks, pass, passes, 100, each.dtype);
      engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = (pass + 1) % each.micro_batches == 0});
    }
    engine.step(1e-3).get();
    for (const auto& unit : engine.units())
      if (!unit->split().pages_values) unit->parameters().wait_gathered();
  }
  EXPECT_EQ(TierBytes(plan).text(), TierBytes(engine, moved, before).text())
      << each.text() << ", rank " << ranks.rank();
}

inline void expect_tiers_as_planned(const DrawnCase& each, const Context& context, Communicator& ranks) {
  switch (each.net) {
    case 0: return expect_tiers_as_planned<UnitNet>(each, context, ranks);
    case 1: return expect_tiers_as_planned<MixedNet>(each, context, ranks);
    default: return expect_tiers_as_planned<HiddenNet>(each, context, ranks);
  }
}

}  // namespace keel::testing
