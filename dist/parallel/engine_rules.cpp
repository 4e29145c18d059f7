#include "keel/dist/parallel/engine_rules.h"

#include <utility>

#include "keel/dist/parallel/engine_keys.h"
#include "keel/dist/parallel/rank_groups.h"
#include "keel/dist/parallel/row_sums.h"
#include "keel/dist/parallel/surviving_groups.h"
#include "keel/dist/parallel/virtual_ranks.h"

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
          "works in the processor's memory alone; on a device it needs offload_optimizer: host");
  if (!needs.one_vector) return;
  for (const FlatBuffer& unit : layout)
    for (const Segment& segment : unit.segments)
      require(options.groups(segment.name, segment.shape).lr_factor == 1,
              "all parameters are one vector, and have no rates of their own");
}

// What lies in files is there a unit at a time.
void check_files(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer) {
  const ShardingOptions& sharding = options.sharding;
  const OptimizerRequirements needs = optimizer.requirements();
  const auto refuse = [](bool refused, std::string_view key, std::string_view what, std::string_view why) {
    if (refused) throw Error(concat(key, " is not offered with ", what, ": ", why), ErrorKind::unsupported);
  };
  constexpr std::string_view kState = "sharding.offload_optimizer: file", kWeights = "sharding.offload_parameters",
                             kGradients = "sharding.offload_gradients";
  const bool state = sharding.offload_optimizer == Residence::file,
             weights = sharding.offload_parameters != Residence::device,
             gradients = sharding.offload_gradients != Residence::device;
  if (!state && !weights && !gradients) return;
  for (const auto& [is_used, key] : {std::pair(state, kState), {weights, kWeights}, {gradients, kGradients}}) {
    refuse(is_used && needs.closure, key, optimizer.name(), "it evaluates the loss at weights of its choice");
    refuse(is_used && static_cast<bool>(options.strategy), key, "a strategy of communication",
           "that keeps all weights at hand");
  }
  for (const FlatBuffer& unit : layout)
    refuse(unit.sparse,
           state     ? kState
           : weights ? kWeights
                     : kGradients,
           "gradients that are kept as rows", "a step touches the rows that its batch looks up");
  refuse(weights && sharding.secondary, kWeights, "sharding.secondary",
         "shards of subgroups would be kept beside those in files");
  refuse(weights && sharding.weight_code != WeightCode::exact && sharding.stage < 3, kWeights, "sharding.weight_code",
         "under zero3 alone are weights gathered before each use");
  refuse(gradients && options.clip_by == ClipBy::value && options.clip != 0, kGradients, "clip_by: value",
         "all gradients would be read once more");
  refuse(gradients && sharding.stage == 0 && sharding.reduces_each(options.micro_batches), kGradients,
         "sharding.accumulation: each_backward under ddp", "all sums would be gathered at once");
  KEEL_CHECK(!sharding.uses_files() || !sharding.offload_folder.empty() || options.scratch_file,
             "what lies in files needs sharding.offload_folder, the folder of the files");
}

}  // namespace

void check_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                  int ranks, bool on_host) {
  const int stage = options.sharding.stage;
  KEEL_CHECK(stage >= 0 && stage < static_cast<int>(std::size(kShardingStages)),
             "the stages of sharding are 0 to 3, got ", stage);
  check_groups(options, ranks);
  check_virtual_ranks(options, optimizer.requirements(), ranks);
  KEEL_CHECK(
      !options.strategy || options.sharding.group > 0 || ranks == 1,
      "a strategy of communication is for groups of ranks; set sharding.group to the ranks of a group, 1 at least");
  KEEL_CHECK(!options.strategy || options.sharding.group < ranks || ranks == 1,
             "one group of all ranks has no other one to tell anything; set sharding.group to fewer than the ", ranks,
             " ranks");
  if (options.compression.kind().codec || options.compression.kind().feedback) {
    const bool codes_groups = options.compression.kind().codec && options.compression.kind().feedback;
    KEEL_CHECK(place_of(options, ranks, 0).groups == 1 || (codes_groups && !options.strategy), "gradient compression ",
               options.compression.kind().name, " is not offered with groups of ranks",
               options.strategy ? " that take outer steps"
                                : ": across groups gradients travel as codes of int8, int4 or topk");
    KEEL_CHECK(options.policy.parameter != DType::f64, "gradient compression is for fp32 and narrower numbers");
  }
  const SurvivingGroups* survivors = options.survivors;
  KEEL_CHECK(survivors == nullptr || options.strategy,
             "groups whose gradients are summed in each step end together; only those with a strategy of communication "
             "go on without others");
  KEEL_CHECK(survivors == nullptr || survivors->ranks_of_group() == options.sharding.group, "groups of ",
             options.sharding.group, " ranks are not those of ", survivors == nullptr ? 0 : survivors->ranks_of_group(),
             " of which some may be lost");
  if (survivors != nullptr && !options.strategy()->survives())
    throw Error(concat("groups do not go on without others by ", options.strategy()->describe(),
                       ", whose exchanges are not repeated"),
                ErrorKind::unsupported);
  if (options.sharding.tunes() && optimizer.requirements().closure)
    throw Error(concat(optimizer.name(),
                       " evaluates the loss as often as it likes in a step, whose time says nothing of sizes; set "
                       "sharding.bucket to a size"),
                ErrorKind::unsupported);
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
  check_files(layout, options, optimizer);
}

bool sums_groups(const ShardedOptions& options, const Optimizer& optimizer) {
  if (!options.strategy) return true;
  if (options.survivors != nullptr) return false;
  OptimizerRequirements requirements = optimizer.requirements();
  if (options.clip != 0) requirements.linear = false;
  return options.strategy()->sums_gradients(requirements);
}

std::string describe_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                            const Optimizer& optimizer) {
  std::string lines =
      concat(to_text(options), "; parameters in ", options.policy.parameter, ", gradients in ", options.policy.gradient,
             ", on the wire in ", options.wire_dtype(), "; ", options.micro_batches, " micro-batches; optimizer ",
             optimizer.name(), options.strategy ? "; " + options.strategy()->describe() : "", "; units from number ",
             options.first_subject, "; named \'", options.name, "\'\n");
  for (const FlatBuffer& unit : layout)
    for (const Segment& segment : unit.segments)
      lines += concat(segment.name, ' ', segment.shape, unit.trainable ? "" : " frozen", unit.sparse ? " by rows" : "",
                      " in unit '", unit.unit, "'\n");
  return lines;
}

}  // namespace keel
