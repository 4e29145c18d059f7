#include "keel/dist/parallel/reducer.h"

#include <utility>

#include "keel/kernels/codec.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

using StageKind = ReductionStage::Kind;

// In the dtype in which a unit's gradient travels.
Tensor on_wire(const Tensor& numbers, const UnitSite& unit) {
  if (numbers.dtype() == unit.split.wire) return numbers;
  const WorkTimer::Scope timing(unit.times.codec);
  return kernels::cast(numbers, unit.split.wire);
}

// Adds up numbers in the wire dtype.
class SumStage : public RunningStage {
 public:
  SumStage(const ReductionStage& stage, const UnitSite& unit)
      : kind_(stage.kind), unit_(unit), ranks_(unit.axes[stage.collective.axis]) {}

  Work begin(const Tensor& numbers, const Tensor& into) override {
    const DType wire = unit_.split.wire;
    const Span shard = unit_.split.shard;
    const int subject = unit_.subject();
    const CombineOp sum = unit_.split.is_pairwise ? CombineOp::pairwise_sum : CombineOp::sum;
    if (kind_ == StageKind::gather_sums) {
      received_ = empty(unit_.context, {unit_.split.whole}, wire, Purpose::bucket);
      sent_ = received_.slice(0, shard.begin, shard.end);
      {
        const WorkTimer::Scope timing(unit_.times.codec);
        kernels::copy_into(sent_, numbers);
      }
      return ranks_.all_gather(sent_, received_, subject);
    }
    sent_ = on_wire(numbers, unit_);
    if (kind_ == StageKind::scatter_sums) {
      received_ = into.defined() && into.dtype() == wire && sent_.raw() == numbers.raw()
                      ? into
                      : empty(unit_.context, {shard.count()}, wire, Purpose::bucket);
      return ranks_.reduce_scatter(sent_, received_, sum, subject);
    }
    received_ = sent_;
    return ranks_.all_reduce(sent_, sum, subject);
  }
  Tensor finish() override {
    sent_ = {};
    return std::exchange(received_, {});
  }

 private:
  StageKind kind_;
  const UnitSite& unit_;
  Communicator& ranks_;
  Tensor sent_, received_;
};

// Sends bytes that a codec makes of each rank's numbers: int8, topk.
//
// Each rank's payload of shard i goes to rank i, or to all. Inside a subgroup a rank gets those of all shards whose
// owners have its place in theirs. Across groups a rank's payload is of all that it has of its group's sum. Sums are
// taken in fp32 in the order of ranks.
class PayloadStage : public RunningStage {
 public:
  PayloadStage(const ReductionStage& stage, const UnitSite& unit)
      : kind_(stage.kind),
        gathers_(stage.collective.kind == CollectiveKind::all_gather),
        unit_(unit),
        codec_(codec_of(unit.options.compression)),
        ranks_(unit.axes[stage.collective.axis]),
        part_(kind_ == StageKind::gather_replicas ? unit.split.reduction.residual.count() : unit.split.shard.count()) {}

  Work begin(const Tensor& numbers, const Tensor&) override {
    const Context& context = unit_.context;
    {
      const WorkTimer::Scope timing(unit_.times.codec);
      const std::int64_t shards = kind_ == StageKind::gather_replicas  ? 1
                                  : kind_ == StageKind::scatter_across ? ranks_.size()
                                                                       : unit_.axes.shards.size();
      sent_ = empty(context, {shards * bytes()}, DType::u8, Purpose::bucket);
      // What is left out stays in the numbers, which nobody reads any more unless they are a residual.
      kernels::encode({rows_of(kernels::cast(numbers, DType::f32), 0, shards), rows_of(sent_, 0, shards), codec_});
      if (kind_ == StageKind::scatter_inside) sent_ = by_place(sent_, shards);
      received_ = empty(context, {(gathers_ ? ranks_.size() : 1) * shards * bytes()}, DType::u8, Purpose::bucket);
      slices_ = gathers_ ? shards : shards / ranks_.size();
    }
    return gathers_ ? ranks_.all_gather(sent_, received_, unit_.subject()) : ranks_.all_to_all(sent_, received_);
  }
  Tensor finish() override {
    const WorkTimer::Scope timing(unit_.times.codec);
    const Tensor sum = zeros(unit_.context, {slices_ * part_}, DType::f32, Purpose::workspace);
    for (std::int64_t r = 0; r < ranks_.size(); ++r)
      kernels::decode_add({rows_of(sum, 0, slices_), rows_of(received_, r * slices_, slices_), codec_});
    sent_ = received_ = {};
    // Blocks of numbers reach into gaps and padding, which stay zero whatever arrives.
    if (kind_ == StageKind::gather_payloads) unit_.buffer.clear_gaps(0, sum);
    else if (kind_ == StageKind::gather_replicas) unit_.buffer.clear_gaps(unit_.split.reduction.residual.begin, sum);
    else if (kind_ != StageKind::scatter_inside) unit_.buffer.clear_gaps(unit_.split.shard.begin, sum);
    return sum;
  }

 private:
  std::int64_t bytes() const { return codec_.bytes(part_); }
  Tensor rows_of(const Tensor& flat, std::int64_t first, std::int64_t count) const {
    const std::int64_t length = flat.dtype() == DType::u8 ? bytes() : part_;
    return flat.slice(0, first * length, (first + count) * length).view({count, length});
  }

  // Payloads by subgroup and place, as payloads by place and subgroup.
  Tensor by_place(const Tensor& payloads, std::int64_t shards) const {
    const std::int64_t places = ranks_.size(), subgroups = shards / places;
    const Tensor sorted = empty(unit_.context, payloads.shape(), DType::u8, Purpose::bucket);
    kernels::copy_into(sorted.view({places, subgroups, bytes()}),
                       payloads.view({subgroups, places, bytes()}).transpose(0, 1));
    return sorted;
  }

  StageKind kind_;
  bool gathers_;
  const UnitSite& unit_;
  Codec codec_;
  Communicator& ranks_;
  std::int64_t part_;        // numbers of a shard
  std::int64_t slices_ = 0;  // shards that each rank has sent here
  Tensor sent_, received_;
};

std::shared_ptr<RunningStage> make_stage(const ReductionStage& stage, const UnitSite& unit) {
  if (stage.kind == StageKind::left_factors) return make_factor_stages(unit);
  if (stage.sends_sums()) return std::make_shared<SumStage>(stage, unit);
  return std::make_shared<PayloadStage>(stage, unit);
}

}  // namespace

Reducer::Reducer(const UnitSite& unit) : unit_(unit) {
  const ReductionPlan& plan = unit.split.reduction;
  if (plan.state > 0) feedback_.emplace(unit.context, plan.residual.count());
  for (const ReductionStage& stage : plan.stages)
    stages_.push_back(stage.kind == StageKind::right_factors ? stages_.back() : make_stage(stage, unit));
  if (!stages_.empty()) factors_ = stages_.front()->factors();
  if (factors_.defined()) feedback_->protect(factors_);
}

void Reducer::begin(const Tensor& gradient, double scale, const Tensor& into) {
  into_ = into;
  next_ = 0;
  scale_ = scale;
  if (feedback_) feedback_->begin_step();
  begin_stage(gradient);
}

void Reducer::begin_stage(Tensor numbers) {
  if (feedback_ && next_ == unit_.split.reduction.feedback_stage) {
    const WorkTimer::Scope timing(unit_.times.codec);
    numbers = feedback_->add(numbers, scale_);
  }
  work_ = stages_[next_++]->begin(numbers, into_);
}

void Reducer::proceed() {
  if (next_ == stages_.size()) return;
  unit_.times.wait(work_);
  begin_stage(stages_[next_ - 1]->finish());
}

Tensor Reducer::finish() {
  while (next_ < stages_.size()) proceed();
  if (feedback_) {
    const WorkTimer::Scope timing(unit_.times.codec);
    feedback_->settle();
  }
  unit_.times.wait(work_);
  into_ = {};
  return on_wire(stages_.back()->finish(), unit_);
}

void Reducer::end_step(bool taken) {
  if (feedback_) feedback_->end_step(taken);
}

}  // namespace keel
