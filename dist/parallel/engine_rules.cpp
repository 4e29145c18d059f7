#include "keel/dist/parallel/engine_rules.h"

#include <bit>

#include "keel/dist/parallel/rank_groups.h"
#include "keel/dist/parallel/row_sums.h"
#include "keel/dist/parallel/sharding_keys.h"

namespace keel {
namespace {

void check_requirements(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                        bool on_host) {
  const std::string_view name = optimizer.name();
  const OptimizerRequirements needs = optimizer.requirements();
  const auto require = [&](bool holds, std::string_view why) {
    if (!holds) throw Error(concat(name, ": ", why), ErrorKind::unsupported);
  };
  if (needs.pure_gradient) {
    require(options.clip == 0, "gradients that are compared with each other must not be clipped; set clip to 0");
    require(!options.compression.kind().feedback,
            "compression with error feedback is not offered: a gradient must depend on the weights alone");
    require(options.scaling.growth == 1 && options.scaling.backoff == 1,
            "a dynamic loss scale is not offered: it skips steps");
  }
  require(!needs.host_memory || on_host,
          "works in the processor's memory alone; on a device it needs offload_optimizer");
  if (!needs.one_vector) return;
  for (const FlatBuffer& unit : layout)
    for (const Segment& segment : unit.segments)
      require(options.groups(segment.name, segment.shape).lr_factor == 1,
              "all parameters are one vector, and have no rates of their own");
}

}  // namespace

// Sums that are no tree over virtual ranks, or what follows from how ranks cut shards.
void check_virtual_ranks(const ShardedOptions& options, const Optimizer& optimizer, int ranks) {
  const ShardingOptions& sharding = options.sharding;
  const int all = sharding.virtual_ranks;
  if (all == 0) return;
  const auto is_power = [](int number) { return number > 0 && std::has_single_bit(static_cast<unsigned>(number)); };
  KEEL_CHECK(is_power(all), "sharding.virtual_ranks: a binary tree is over 1, 2, 4, 8 ... virtual ranks, got ", all);
  KEEL_CHECK(is_power(ranks) && ranks <= all, "sharding.virtual_ranks: ", all,
             " virtual ranks are computed by 1, 2, 4 ... ranks, ", all, " at most, and there are ", ranks,
             "; start as many, or leave virtual_ranks out");
  const auto refuse = [&](bool holds, std::string_view other, std::string_view why) {
    if (!holds)
      throw Error(concat("sharding.virtual_ranks does not go together with ", other, ": ", why),
                  ErrorKind::unsupported);
  };
  refuse(sharding.group == 0, "sharding.group", "groups of ranks are summed apart; leave the group out");
  refuse(!options.strategy, "outer.type", "groups have weights of their own, which follow from the number of ranks");
  refuse(options.compression.type == Compression::Type::none, "gradient_compression.type",
         "gradients travel as they are, so that partial sums are not rounded; set it to none");
  refuse(options.wire.value_or(options.wire_dtype()) == options.wire_dtype(), "sharding.wire",
         "partial sums travel in fp32, so that they are not rounded; leave the wire out");
  refuse(sharding.weight_code == WeightCode::exact, "sharding.weight_code",
         "codes have a scale for a block of each rank's shard; set it to exact");
  refuse(!sharding.reduces_each(options.micro_batches), "sharding.accumulation",
         "a virtual rank adds up its micro-batches first; set it to deferred");
  const OptimizerRequirements needs = optimizer.requirements();
  refuse(!needs.closure, optimizer.name(), "it adds dot products over the shard of each rank");
  refuse(!needs.rows, optimizer.name(), "rows are added in the order of ranks, however many there are");
}

void check_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                  int ranks, bool on_host) {
  const int stage = options.sharding.stage;
  KEEL_CHECK(stage >= 0 && stage < static_cast<int>(std::size(kShardingStages)),
             "the stages of sharding are 0 to 3, got ", stage);
  check_groups(options, ranks);
  check_virtual_ranks(options, optimizer, ranks);
  KEEL_CHECK(
      !options.strategy || options.sharding.group > 0 || ranks == 1,
      "a strategy of communication is for groups of ranks; set sharding.group to the ranks of a group, 1 at least");
  KEEL_CHECK(!options.strategy || options.sharding.group < ranks || ranks == 1,
             "one group of all ranks has no other one to tell anything; set sharding.group to fewer than the ", ranks,
             " ranks");
  if (options.compression.has_codec() || options.compression.kind().feedback) {
    KEEL_CHECK(place_of(options, ranks, 0).groups == 1, "gradient compression ", options.compression.kind().name,
               " is not offered with groups of ranks: their sums are summed again, and nobody would keep what that "
               "leaves out");
    KEEL_CHECK(options.policy.parameter != DType::f64, "gradient compression is for fp32 and narrower numbers");
  }
  if (options.strategy && optimizer.requirements().closure)
    throw Error(concat(optimizer.name(),
                       " evaluates the loss of all ranks several times in a step; a strategy of "
                       "communication is not offered with it"),
                ErrorKind::unsupported);
  if (options.strategy && optimizer.requirements().averages)
    throw Error(concat(optimizer.name(),
                       " trains at other weights than it has; a strategy of communication is not offered "
                       "with it"),
                ErrorKind::unsupported);
  check_gradients(layout, optimizer);
  check_requirements(layout, options, optimizer, on_host);
}

bool sums_groups(const ShardedOptions& options, const Optimizer& optimizer) {
  if (!options.strategy) return true;
  OptimizerRequirements requirements = optimizer.requirements();
  if (options.clip != 0) requirements.linear = false;
  return options.strategy()->sums_gradients(requirements);
}

std::string describe_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                            const Optimizer& optimizer) {
  const LossScaling& scaling = options.scaling;
  std::string lines = concat(
      to_text(options.sharding), "; parameters in ", options.policy.parameter, ", gradients in ",
      options.policy.gradient, ", on the wire in ", options.wire_dtype(), "; compression ",
      options.compression.kind().name, ", fraction ", options.compression.fraction, ", rank ", options.compression.rank,
      ", bits ", static_cast<int>(options.compression.bits), "; ", options.micro_batches, " micro-batches; seed ",
      options.seed, "; clip ", options.clip, options.clip_by == ClipBy::value ? " by value" : "", "; loss scale ",
      options.loss_scale, " (growth ", scaling.growth, ", backoff ", scaling.backoff, ", interval ", scaling.interval,
      ", hysteresis ", scaling.hysteresis, ", floor ", scaling.floor, "); optimizer ", optimizer.name(),
      options.strategy ? "; " + options.strategy()->describe() : "", "; units from number ", options.first_subject,
      "; named \'", options.name, "\'\n");
  for (const FlatBuffer& unit : layout)
    for (const Segment& segment : unit.segments)
      lines += concat(segment.name, ' ', segment.shape, unit.trainable ? "" : " frozen", unit.sparse ? " by rows" : "",
                      " in unit '", unit.unit, "'\n");
  return lines;
}

}  // namespace keel
