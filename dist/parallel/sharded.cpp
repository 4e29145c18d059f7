#include "keel/dist/parallel/sharded.h"

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/kernels/elementwise.h"

namespace keel {

// Tells the engine when a unit's forward pass begins and ends.
class Sharded::UnitObserver : public ForwardObserver {
 public:
  UnitObserver(Sharded& engine, std::size_t module) : engine_(engine), module_(module) {}
  void forward_begins(const Module&) override { engine_.forward_begins(module_); }
  void forward_ends(const Module&) noexcept override { engine_.forward_ends(module_); }

 private:
  Sharded& engine_;
  std::size_t module_;
};

Sharded::Sharded(Module& model, const Context& context, Communicator& communicator,
                 std::unique_ptr<const Optimizer> optimizer, const ShardedOptions& options)
    : Sharded(model, context, nullptr, &communicator, std::move(optimizer), options) {}

Sharded::Sharded(Module& model, const Context& context, std::unique_ptr<const Optimizer> optimizer,
                 const ShardedOptions& options)
    : Sharded(model, context, make_communicator(ThreadHub(1).connect(0)), nullptr, std::move(optimizer), options) {}

Sharded::Sharded(Module& model, const Context& context, std::unique_ptr<Communicator> own, Communicator* communicator,
                 std::unique_ptr<const Optimizer> optimizer, const ShardedOptions& options)
    : context_(context),
      own_communicator_(std::move(own)),
      communicator_(communicator != nullptr ? *communicator : *own_communicator_),
      optimizer_(std::move(optimizer)),
      options_(options),
      offloads_(options.sharding.offload_optimizer && context.device().type != DeviceType::cpu) {
  const std::vector<FlatBuffer> layout = lay_out(model, size(), optimizer_->requirements().block);
  check_options(layout);
  options_.policy.keeps_master = optimizer_->requirements().master;
  options_.policy.averages = optimizer_->requirements().averages;
  control_ = communicator_.split(0, rank());
  check_agreement(*control_, describe(model, layout), "ranks differ in their model or options");
  make_groups();
  make_units(model);
  buffer_updates_.emplace(model, context_, *control_);
  make_state();
  make_schedule(model);
  watch_leaves();
}

Sharded::~Sharded() {
  for (const auto& [module, observer] : observers_) module->unsubscribe(observer);
  for (const auto& unit : units_)
    if (unit->trainable())
      for (const Segment& segment : unit->layout().segments) {
        Leaf& leaf = *segment.parameter->variable.leaf();
        leaf.forget_hooks(this);
        if (leaf.owner == this) leaf.owner = nullptr;
      }
}

// What each rank refuses by itself, before there is a communicator that the others could still be using.
void Sharded::check_options(std::span<const FlatBuffer> layout) const {
  const int stage = options_.sharding.stage, group = options_.sharding.group;
  KEEL_CHECK(stage >= 0 && stage < static_cast<int>(std::size(kShardingStages)),
             "the stages of sharding are 0 to 3, got ", stage);
  KEEL_CHECK(group >= 0 && (group == 0 || size() % group == 0), "groups of ", group, " ranks do not divide the ",
             size(), " that there are");
  if (options_.compression.kind().feedback) {
    KEEL_CHECK(!has_replicas(), "gradient compression ", options_.compression.kind().name,
               " is not offered with groups of ranks: their sums are summed again, and nobody would keep what that "
               "leaves out");
    KEEL_CHECK(options_.policy.parameter != DType::f64, "gradient compression is for fp32 and narrower numbers");
  }
  check_gradients(layout, *optimizer_);
  check_requirements(layout);
}

void Sharded::check_requirements(std::span<const FlatBuffer> layout) const {
  const std::string_view name = optimizer_->name();
  const OptimizerRequirements needs = optimizer_->requirements();
  const auto require = [&](bool holds, std::string_view why) {
    if (!holds) throw Error(concat(name, ": ", why), ErrorKind::unsupported);
  };
  if (needs.pure_gradient) {
    require(options_.clip == 0, "gradients that are compared with each other must not be clipped; set clip to 0");
    require(!options_.compression.kind().feedback,
            "compression with error feedback is not offered: a gradient must depend on the weights alone");
    require(options_.scaling.growth == 1 && options_.scaling.backoff == 1,
            "a dynamic loss scale is not offered: it skips steps");
  }
  require(!needs.host_memory || offloads_ || context_.device().type == DeviceType::cpu,
          "works in the processor's memory alone; on a device it needs offload_optimizer");
  if (!needs.one_vector) return;
  for (const FlatBuffer& unit : layout)
    for (const Segment& segment : unit.segments)
      require(options_.groups(segment.name, segment.shape).lr_factor == 1,
              "all parameters are one vector, and have no rates of their own");
}

// All that decides which collectives a rank asks for, and what they hold.
std::string Sharded::describe(Module& model, std::span<const FlatBuffer> layout) const {
  const ShardingOptions& sharding = options_.sharding;
  const LossScaling& scaling = options_.scaling;
  std::string lines = concat(
      "stage ", sharding.stage, "; parameters in ", options_.policy.parameter, ", gradients in ",
      options_.policy.gradient, ", on the wire in ", options_.wire_dtype(), "; compression ",
      options_.compression.kind().name, ", fraction ", options_.compression.fraction, ", rank ",
      options_.compression.rank, "; ", options_.micro_batches, " micro-batches; seed ", options_.seed, "; clip ",
      options_.clip, options_.clip_by == ClipBy::value ? " by value" : "", "; loss scale ", options_.loss_scale,
      " (growth ", scaling.growth, ", backoff ", scaling.backoff, ", interval ", scaling.interval, ", hysteresis ",
      scaling.hysteresis, ", floor ", scaling.floor, "); buckets of ", sharding.first_bucket, " and ", sharding.bucket,
      " bytes; overlap ", sharding.overlap, "; accumulation ", name_of(sharding.accumulation),
      "; reshard after forward ", sharding.reshard_after_forward, "; keep last unit ", sharding.keep_last_unit,
      "; prefetch ", sharding.prefetch, "; persistence threshold ", sharding.persistence_threshold, "; strict ",
      sharding.strict, "; groups of ", sharding.group, "; offload ", sharding.offload_optimizer, "; optimizer ",
      optimizer_->name(), "; units from number ", options_.first_subject, "; named \'", options_.name, "\'\n");
  for (const FlatBuffer& unit : layout)
    for (const Segment& segment : unit.segments)
      lines += concat(segment.name, ' ', segment.shape, unit.trainable ? "" : " frozen", unit.sparse ? " by rows" : "",
                      " in unit '", unit.unit, "'\n");
  return lines + BufferUpdates::describe(model);
}

bool Sharded::has_replicas() const {
  const int group = options_.sharding.group;
  return group != 0 && group != size() && kShardingStages[options_.sharding.stage].optimizer;
}

void Sharded::make_groups() {
  if (!has_replicas()) return;
  const int group = options_.sharding.group;
  group_ = communicator_.split(rank() / group, rank() % group);
  replicas_ = communicator_.split(rank() % group, rank() / group);
}

void Sharded::make_units(Module& model) {
  ShardUnit::Memory memory{.policy = options_.policy,
                           .wire = options_.wire_dtype(),
                           .compression = options_.compression,
                           .seed = options_.seed,
                           .accumulates = options_.micro_batches > 1,
                           .reduces_each = options_.sharding.reduces_each(options_.micro_batches),
                           .offload = offloads_};
  Communicator& group = group_ != nullptr ? *group_ : communicator_;
  std::vector<FlatBuffer> layouts = lay_out(model, group.size(), optimizer_->requirements().block);
  for (FlatBuffer& layout : layouts) {
    memory.subject = (options_.first_subject + static_cast<int>(units_.size())) & 0xffff;
    units_.push_back(
        std::make_unique<ShardUnit>(std::move(layout), context_, group, replicas_.get(), options_.sharding, memory));
  }
}

void Sharded::make_state() {
  const std::int32_t hysteresis = static_cast<std::int32_t>(options_.scaling.hysteresis);
  state_ = kernels::make_step_state(
      context_, {.loss_scale = static_cast<float>(options_.loss_scale), .hysteresis_left = hysteresis});
  partials_ = empty(context_, {communicator_.size() * static_cast<std::int64_t>(sizeof(StepPartial))}, DType::u8,
                    Purpose::workspace);
  if (const SharedNumber* shared = optimizer_->shared_number())
    shared_ = from_values(offloads_ ? context_.host() : context_,
                          std::vector<double>(static_cast<std::size_t>(shared->count), shared->initial),
                          {shared->count}, Purpose::workspace);
  make_sums();
  std::int64_t before = 0;    // numbers in the units before
  std::size_t parameter = 0;  // that are trained, in the units before
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    optimizer_state_.emplace_back();
    if (unit.trainable()) {
      for (std::size_t kind = 0; kind < optimizer_->state_names().size(); ++kind) {
        optimizer_state_.back().push_back(
            zeros(unit.update_context(), {unit.owned().count()}, state_dtype(), Purpose::optimizer));
        if (const double initial = optimizer_->initial_state(kind); initial != 0)
          kernels::fill(optimizer_state_.back().back(), initial);
      }
    }
    make_ranges(i, before, parameter);
    if (!unit.trainable()) continue;
    before += unit.layout().numel;
    parameter += unit.layout().segments.size();
  }
  make_matrices();
}

void Sharded::make_sums() {
  const Context& context = offloads_ ? context_.host() : context_;
  const int sharers = group_ != nullptr ? group_->size() : size();
  if (optimizer_->requirements().closure) {
    dots_.emplace(1, context, context_, *control_, sharers);
    losses_.emplace(1, context, context_, *control_, size());
  }
  if (optimizer_->requirements().passes == 0) return;
  std::vector<Dims> shapes;
  for (const auto& unit : units_)
    if (unit->trainable())
      for (const Segment& segment : unit->layout().segments) shapes.push_back(segment.shape);
  sums_.emplace(*optimizer_, shapes, context, context_, *control_, sharers);
}

void Sharded::make_matrices() {
  if (!optimizer_->requirements().matrices) return;
  std::vector<const FlatBuffer*> layout;
  for (const auto& unit : units_) layout.push_back(&unit->layout());
  Communicator& ranks = group_ != nullptr ? *group_ : communicator_;
  MatrixDeal deal(layout, *optimizer_, options_.groups, ranks.size(),
                  kShardingStages[options_.sharding.stage].optimizer, state_dtype());
  matrices_.emplace(*optimizer_, std::move(deal), ranges_, offloads_ ? context_.host() : context_, context_, ranks);
}

// Elements of a unit that this rank owns, as the optimizer sees them.
ParameterRange Sharded::range_of(std::size_t unit, std::int64_t begin, std::int64_t end) const {
  const ShardUnit& own = *units_[unit];
  const auto cut = [&](const Tensor& flat) {
    return flat.defined() ? flat.slice(0, begin - own.owned().begin, end - own.owned().begin) : Tensor();
  };
  ParameterRange range{cut(own.update_values()), cut(own.own_master()), cut(own.own_gradient()), {}, {}};
  for (const Tensor& state : optimizer_state_[unit]) range.state.push_back(cut(state));
  return range;
}

// What the optimizer keeps of one parameter besides, where this rank updates a part of it.
std::vector<Tensor> Sharded::make_parameter_state(const ShardUnit& unit, const Segment& segment,
                                                  const ParameterGroup& group) {
  const std::int64_t begin = std::max(segment.offset, unit.owned().begin);
  const std::int64_t end = std::min(segment.offset + segment.numel, unit.owned().end);
  std::vector<Tensor> kept;
  for (const StateKind& kind : optimizer_->parameter_state(segment.shape, group)) {
    const Dims whole = kind.block == 1 ? segment.shape : Dims{kind.count(segment.numel)};
    TensorPart part{concat(kind.name, '.', segment.name), kind.shape.value_or(whole)};
    if (begin < end) {
      part.begin = kind.shape ? 0 : (begin - segment.offset) / kind.block;
      part.values =
          zeros(unit.update_context(), {kind.count(end - begin)}, kind.dtype(state_dtype()), Purpose::optimizer);
      kept.push_back(part.values);
    }
    parameter_state_.push_back(part);
  }
  return kept;
}

// Neighbours of one group are updated as one range, as far as this rank owns them; unless the optimizer treats
// parameters one by one. `before`, `parameter`: numbers and parameters that are trained in the units before.
void Sharded::make_ranges(std::size_t unit, std::int64_t before, std::size_t parameter) {
  const auto first_range = static_cast<std::int64_t>(ranges_.size()),
             first_part = static_cast<std::int64_t>(parts_.size());
  const std::vector<Segment>& segments = units_[unit]->layout().segments;
  const bool one_by_one = optimizer_->requirements().one_by_one;
  const auto group_of = [&](std::size_t at) { return keel::group_of(options_.groups, segments[at]); };
  for (std::size_t first = 0, last; first < segments.size() && units_[unit]->trainable(); first = last) {
    const ParameterGroup group = group_of(first);
    for (last = first + 1; !one_by_one && last < segments.size() && group_of(last) == group;) ++last;
    const std::int64_t begin = segments[first].offset, end = segments[last - 1].offset + segments[last - 1].numel;
    const Span owned = units_[unit]->owned();
    const std::vector<Tensor> kept =
        one_by_one ? make_parameter_state(*units_[unit], segments[first], group) : std::vector<Tensor>{};
    const auto add = [&](std::vector<ParameterRange>& to, const Span& among) {
      const Span span{std::max(begin, among.begin), std::min(end, among.end)};
      if (span.begin >= span.end) return;
      to.push_back(range_of(unit, span.begin, span.end));
      to.back().group = group;
      to.back().first = before + span.begin;
      if (!one_by_one) return;
      to.back().shape = segments[first].shape;
      to.back().begin = span.begin - begin;
      const std::vector<StateKind> kinds = optimizer_->parameter_state(segments[first].shape, group);
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        const std::int64_t from = (span.begin - std::max(begin, owned.begin)) / kinds[k].block;
        to.back().state.push_back(kinds[k].shape ? kept[k]
                                                 : kept[k].slice(0, from, from + kinds[k].count(span.count())));
      }
      if (!sums_) return;
      to.back().measured = sums_->of_part(parameter + first);
      to.back().sums = sums_->of_whole(parameter + first);
    };
    add(ranges_, owned);
    if (sums_) add(parts_, units_[unit]->shard());
  }
  unit_ranges_.push_back({first_range, static_cast<std::int64_t>(ranges_.size())});
  unit_parts_.push_back({first_part, static_cast<std::int64_t>(parts_.size())});
}

void Sharded::make_schedule(Module& model) {
  std::vector<ScheduledUnit> scheduled(units_.size());
  std::size_t modules = 0;
  for_each_module(model, [&](const std::string& path, Module& module) {
    if (!path.empty() && !module.is_unit()) return;
    bool has_units = false;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const ShardUnit& unit = *units_[i];
      if (unit.layout().unit != path) continue;
      has_units = true;
      scheduled[i] = {.module = modules,
                      .root = path.empty(),
                      .trainable = unit.trainable(),
                      .shards_parameters = unit.parameters_sharded(),
                      .gathers_sums = unit.gathers_sums(),
                      .leaves = unit.layout().segments.size(),
                      .gradient_bytes = unit.gradient_bytes()};
    }
    if (!has_units) return;
    auto observer = std::make_shared<UnitObserver>(*this, modules++);
    module.subscribe(observer);
    observers_.emplace_back(&module, std::move(observer));
  });
  schedule_ = UnitSchedule(std::move(scheduled), options_.sharding);
}

void Sharded::watch_leaves() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    units_[i]->when_touched([this, i] { touched(i); });
    if (!units_[i]->trainable()) continue;
    for (const Segment& segment : units_[i]->layout().segments) {
      Leaf& leaf = *segment.parameter->variable.leaf();
      leaf.owner = this;
      leaf.when_ready(this, [this, i](BackwardPass&) { gradient_ready(i); });
      if (units_[i]->parameters_sharded())
        leaf.when_passed(this, [this, i](BackwardPass& pass) { constant_passed(i, pass); });
    }
  }
}

}  // namespace keel
