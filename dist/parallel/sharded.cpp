#include "keel/dist/parallel/sharded.h"

#include <algorithm>
#include <map>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/dist/parallel/engine_rules.h"
#include "keel/dist/parallel/file_pages.h"

namespace keel {

// Tells the engine when the forward pass of a unit, or of the model, begins and ends.
class Sharded::UnitObserver : public ForwardObserver {
 public:
  // `module`: none where the root has no parameters of its own.
  UnitObserver(Sharded& engine, bool is_root, std::optional<std::size_t> module)
      : engine_(engine), is_root_(is_root), module_(module) {}
  void forward_begins(const Module&) override {
    if (is_root_) engine_.pass_begins();
    if (module_) engine_.forward_begins(*module_);
  }
  void forward_ends(const Module&) noexcept override {
    if (module_) engine_.forward_ends(*module_);
  }

 private:
  Sharded& engine_;
  bool is_root_;
  std::optional<std::size_t> module_;
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
      times_(context),
      own_communicator_(std::move(own)),
      communicator_(communicator != nullptr ? *communicator : *own_communicator_),
      optimizer_(std::move(optimizer)),
      options_(options),
      offloads_(options.sharding.offloads_optimizer() && context.device().type != DeviceType::cpu) {
  const bool on_processor = context.device().type == DeviceType::cpu;
  if (on_processor) options_.sharding = options_.sharding.on_processor();
  const std::vector<FlatBuffer> layout = lay_out(model, size(), optimizer_->requirements().block);
  check_engine(layout, options_, *optimizer_, size(), offloads_ || on_processor);
  options_.policy.keeps_master = optimizer_->requirements().master;
  options_.policy.averages = optimizer_->requirements().averages;
  control_ = communicator_.split(0, rank());
  check_agreement(*control_, describe_engine(layout, options_, *optimizer_) + BufferUpdates::describe(model),
                  "ranks differ in their model or options");
  const bool is_tuned = options_.sharding.tunes();
  if (is_tuned) options_.sharding.bucket = ShardingOptions{}.bucket;
  RankPlace place = place_of(options_, size(), rank());
  place.sums_groups = sums_groups(options_, *optimizer_);
  groups_.emplace(communicator_, place, options_);
  if (!place.sums_groups && place.groups > 1) {
    strategy_ = options_.strategy();
    group_control_ = options_.survivors != nullptr ? groups_->axes().shards.split(0, place.rank)
                                                   : control_->split(rank() / place.ranks, place.rank);
  }
  Communicator& deciders = group_control_ ? *group_control_ : *control_;
  if (options_.sharding.pages()) make_pager(layout);
  const EngineSite site{
      options_, times_, context_, groups_->axes(), groups_->place(), offloads_, pager_ ? &*pager_ : nullptr};
  for (FlatBuffer& unit : lay_out(model, shard_ranks(options_, size()), optimizer_->requirements().block))
    units_.push_back(std::make_unique<ShardUnit>(std::move(unit), site, units_.size()));
  buffer_updates_.emplace(model, deciders, site);
  weights_.assign(static_cast<std::size_t>(virtual_ranks()), 0);
  decision_.emplace(deciders, site);
  memory_.emplace(units_, *optimizer_, deciders, site);
  if (optimizer_->requirements().closure) {
    const RanksSite among{*control_, memory_->context(), context_, times_.waited_ms};
    dots_.emplace(1, among, groups_->place().ranks);
    losses_.emplace(1, among, size());
  }
  make_schedule(model);
  watch_leaves();
  begin_strategy();
  // Groups of which some may be lost choose each for itself.
  Communicator& choosers = options_.survivors != nullptr ? deciders : *control_;
  if (is_tuned && trains() && choosers.size() > 1) {
    tuning_.emplace(options_, schedule_, tuned_ranks().ways(), context_, choosers);
    use_tuned();
  }
}

bool Sharded::trains() const {
  return std::ranges::any_of(units_, [](const auto& unit) { return unit->trainable(); });
}

void Sharded::begin_strategy() {
  if (!strategy_) return;
  KEEL_CHECK(!changes_buffers(), "a strategy of communication is not offered for models whose steps change buffers");
  StrategySite site{.units = {}, .context = context_, .outer = *groups_->axes().replicas};
  for (const auto& unit : units_) {
    strategy_units_.push_back(site.units.size());
    if (!unit->trainable()) continue;
    KEEL_CHECK(!unit->sparse(), "a strategy of communication is not offered for gradients that are kept as rows");
    site.units.push_back({unit->layout().unit, unit->parameters().own_weights(), unit->gradient().own(),
                          unit->split().owns_all() ? unit->split().ranks : 1});
  }
  strategy_->begin(site);
  strategy_step_count_ = zeros(context_.host(), {1}, DType::f64, Purpose::workspace);
  group_steps_ = zeros(context_.host(), {5}, DType::f64, Purpose::workspace);
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

// All ranks have room for what lies in files, or none goes on.
void Sharded::make_pager(std::span<const FlatBuffer> layout) {
  const ShardingOptions& sharding = options_.sharding;
  const std::vector<UnitSplit> splits = split_units(layout, options_, groups_->place());
  const FileSite site{layout,      splits,          options_.policy,
                      *optimizer_, options_.groups, context_.device().type != DeviceType::cpu,
                      offloads_};
  const std::int64_t piece = piece_of_update(site, sharding.offload_budget), room = room_in_file(site);
  if (!sharding.uses_files()) {
    pager_.emplace(sharding.offload_budget, piece);
    return;
  }
  together(*control_, [&] {
    std::unique_ptr<ScratchFile> file = options_.scratch_file ? options_.scratch_file(sharding.offload_folder)
                                                              : make_scratch_file(sharding.offload_folder);
    if (file->alignment() == 1)
      context_.log(LogLevel::info,
                   concat("files in ", file->folder(), " are read and written through the system's cache"));
    pager_.emplace(std::move(file), sharding.offload_threads, sharding.offload_budget, piece);
    pager_->file().reserve(room);
  });
}

// Failures of files, which each rank has noted for itself.
void Sharded::agree_on_files() {
  if (pager_) together(*control_, [&] { pager_->throw_noted(); });
}

void Sharded::make_schedule(Module& model) {
  std::vector<ScheduledUnit> scheduled;
  std::map<std::string, std::size_t> modules;  // by path
  for (const auto& unit : units_) {
    const std::size_t module = modules.try_emplace(unit->layout().unit, modules.size()).first->second;
    scheduled.push_back(scheduled_unit(unit->layout(), unit->split(), module));
  }
  for_each_module(model, [&](const std::string& path, Module& module) {
    if (!path.empty() && !module.is_unit()) return;
    const auto found = modules.find(path);
    const std::optional<std::size_t> number = found == modules.end() ? std::nullopt : std::optional(found->second);
    if (!path.empty() && !number) return;
    auto observer = std::make_shared<UnitObserver>(*this, path.empty(), number);
    module.subscribe(observer);
    observers_.emplace_back(&module, std::move(observer));
  });
  schedule_ = UnitSchedule(std::move(scheduled), options_.sharding);
}

void Sharded::watch_leaves() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    units_[i]->parameters().when_touched([this, i] { return touched(i); });
    if (!units_[i]->trainable()) continue;
    for (const Segment& segment : units_[i]->layout().segments) {
      Leaf& leaf = *segment.parameter->variable.leaf();
      leaf.owner = this;
      leaf.when_ready(this, [this, i](BackwardPass&) { gradient_ready(i); });
      if (units_[i]->split().values_come_and_go())
        leaf.when_passed(this, [this, i](BackwardPass& pass) { constant_passed(i, pass); });
    }
  }
}

}  // namespace keel
