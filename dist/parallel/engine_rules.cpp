#include "keel/dist/parallel/engine_rules.h"

#include <bit>
#include <utility>

#include "keel/dist/parallel/engine_keys.h"
#include "keel/dist/parallel/rank_groups.h"
#include "keel/dist/strategies/surviving_groups.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// With a message of these parts.
template <class... Parts>
void refuse(bool refused, const Parts&... parts) {
  if (refused) throw Error(concat(parts...), ErrorKind::unsupported);
}

void check_requirements(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                        bool on_host) {
  const std::string_view name = optimizer.name();
  const OptimizerRequirements needs = optimizer.requirements();
  const auto require = [&](bool holds, std::string_view why) { refuse(!holds, name, ": ", why); };
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
  const auto refuse_with = [](bool refused, std::string_view key, std::string_view what, std::string_view why) {
    refuse(refused, key, " is not offered with ", what, ": ", why);
  };
  constexpr std::string_view kState = "sharding.offload_optimizer: file", kWeights = "sharding.offload_parameters",
                             kGradients = "sharding.offload_gradients";
  const bool state = sharding.offload_optimizer == Residence::file,
             weights = sharding.offload_parameters != Residence::device,
             gradients = sharding.offload_gradients != Residence::device;
  if (!state && !weights && !gradients) return;
  for (const auto& [is_used, key] : {std::pair(state, kState), {weights, kWeights}, {gradients, kGradients}}) {
    refuse_with(is_used && needs.closure, key, optimizer.name(), "it evaluates the loss at weights of its choice");
    refuse_with(is_used && static_cast<bool>(options.strategy), key, "a strategy of communication",
                "that keeps all weights at hand");
  }
  for (const FlatBuffer& unit : layout)
    refuse_with(unit.sparse,
                state     ? kState
                : weights ? kWeights
                          : kGradients,
                "gradients that are kept as rows", "a step touches the rows that its batch looks up");
  refuse_with(weights && sharding.secondary, kWeights, "sharding.secondary",
              "shards of subgroups would be kept beside those in files");
  refuse_with(weights && sharding.weight_code != WeightCode::exact && sharding.stage < 3, kWeights,
              "sharding.weight_code", "under zero3 alone are weights gathered before each use");
  refuse_with(gradients && options.clip_by == ClipBy::value && options.clip != 0, kGradients, "clip_by: value",
              "all gradients would be read once more");
  refuse_with(gradients && sharding.stage == 0 && sharding.reduces_each(options.micro_batches), kGradients,
              "sharding.accumulation: each_backward under ddp", "all sums would be gathered at once");
  KEEL_CHECK(!sharding.uses_files() || !sharding.offload_folder.empty() || options.scratch_file,
             "what lies in files needs sharding.offload_folder, the folder of the files");
}

}  // namespace

std::vector<VirtualRankConflict> conflicts_of_virtual_ranks(const ShardedOptions& options,
                                                            const SettledRequirements& optimizer) {
  const ShardingOptions& sharding = options.sharding;
  if (sharding.virtual_ranks == 0) return {};
  const DType wide = options.partial_sum_dtype();
  const std::pair<bool, VirtualRankConflict> all[] = {
      {sharding.group != 0, {"sharding.group", "groups of ranks are summed apart; set it to 0"}},
      {options.strategy != nullptr, {"outer.type", "what groups of ranks are follows from how many ranks there are"}},
      {options.compression.type != Compression::Type::none,
       {"gradient_compression.type", "partial sums travel as they are; set it to none"}},
      {options.wire.value_or(wide) != wide,
       {"sharding.wire", "partial sums travel in the numbers that they are added in; leave it out"}},
      {sharding.weight_code != WeightCode::exact,
       {"sharding.weight_code", "codes have a scale for each block of a rank's shard; set it to exact"}},
      {sharding.accumulation != Accumulation::deferred,
       {"sharding.accumulation", "a virtual rank adds up its micro-batches first; set it to deferred"}},
      {sharding.offload_gradients != Residence::device,
       {"sharding.offload_gradients", "partial sums lie where backward adds them; set it to device"}},
      {optimizer.closure, {"optimizer.type", "it adds products over the shard of each rank, not along the tree"}},
      {optimizer.rows, {"optimizer.type", "rows of tables are added in the order of ranks, not along the tree"}},
  };
  std::vector<VirtualRankConflict> conflicts;
  for (const auto& [is_there, conflict] : all)
    if (is_there) conflicts.push_back(conflict);
  return conflicts;
}

std::string conflict_of_gradients(const PrecisionPolicy& policy) {
  if (policy.gradient == policy.parameter || policy.gradient == policy.master_dtype()) return "";
  const bool is_wide = policy.parameter == policy.master_dtype();
  return concat("backward computes in ", policy.parameter, ", and adds gradients up in ", policy.parameter,
                is_wide ? "" : concat(" or ", policy.master_dtype()), ", not in ", policy.gradient,
                "; leave it out, or compute in ", policy.gradient);
}

bool is_number_of_virtual_ranks(int number) {
  return number == 0 || (number > 0 && std::has_single_bit(static_cast<unsigned>(number)));
}

void check_ranks(const ShardedOptions& options, const OptimizerRequirements& optimizer, int ranks) {
  const int stage = options.sharding.stage, all = options.sharding.virtual_ranks;
  KEEL_CHECK(stage >= 0 && stage < static_cast<int>(std::size(kShardingStages)),
             "the stages of sharding are 0 to 3, got ", stage);
  check_groups(options, ranks);
  KEEL_CHECK(is_number_of_virtual_ranks(all),
             "sharding.virtual_ranks: a binary tree is over 1, 2, 4, 8 ... of them, got ", all);
  for (const VirtualRankConflict& conflict : conflicts_of_virtual_ranks(options, optimizer.settled()))
    throw Error(concat("sharding.virtual_ranks does not go together with ", conflict.key, ": ", conflict.why),
                ErrorKind::unsupported);
  KEEL_CHECK(all == 0 || (ranks <= all && is_number_of_virtual_ranks(ranks)), "sharding.virtual_ranks: ", all,
             " virtual ranks are shared by 1, 2, 4 ... ranks, ", all, " at most, and there are ", ranks,
             "; start another number of ranks, or set virtual_ranks to 0");
}

void check_gradients(std::span<const FlatBuffer> layout, const Optimizer& optimizer) {
  for (const FlatBuffer& buffer : layout) {
    if (!buffer.trainable || buffer.sparse == optimizer.requirements().rows) continue;
    const std::string& name = buffer.segments.front().name;
    if (optimizer.requirements().rows)
      throw Error(concat(optimizer.name(), " takes gradients that are kept as rows alone, and that of ", name,
                         " is dense: freeze it, make it an embedding with sparse gradients, or take another optimizer, "
                         "such as Adam"));
    throw Error(concat(optimizer.name(), " takes dense gradients, and that of ", name,
                       " is kept as rows: take SparseAdam, or an embedding with dense gradients (sparse = false)"));
  }
}

void check_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                  int ranks, bool on_host) {
  check_ranks(options, optimizer.requirements(), ranks);
  if (const std::string conflict = conflict_of_gradients(options.policy); !conflict.empty())
    throw Error(concat("sharding.gradient: ", conflict), ErrorKind::unsupported);
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
  if (const SurvivingGroups* const survivors = options.survivors) {
    KEEL_CHECK(options.strategy,
               "groups whose gradients are summed in each step end together; only those with a strategy of "
               "communication go on without others");
    KEEL_CHECK(survivors->ranks_of_group() == options.sharding.group, "groups of ", options.sharding.group,
               " ranks are not those of ", survivors->ranks_of_group(), " of which some may be lost");
    refuse(!options.strategy()->survives(), "groups do not go on without others by ", options.strategy()->describe(),
           ", whose exchanges are not repeated");
  }
  const OptimizerRequirements needs = optimizer.requirements();
  refuse(
      options.sharding.tunes() && needs.closure, optimizer.name(),
      " evaluates the loss as often as it likes in a step, whose time says nothing of sizes; set sharding.bucket to a "
      "size");
  refuse(
      options.strategy && needs.closure, optimizer.name(),
      " evaluates the loss of all ranks several times in a step; a strategy of communication is not offered with it");
  refuse(options.strategy && needs.averages, optimizer.name(),
         " trains at other weights than it has; a strategy of communication is not offered with it");
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
