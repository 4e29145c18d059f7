// Stages whose collectives add up numbers, in the wire dtype.

#include <utility>

#include "keel/dist/parallel/running_stage.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

using StageKind = ReductionStage::Kind;

class SumStage : public RunningStage {
 public:
  SumStage(StageKind kind, const StageSite& site) : kind_(kind), site_(site) {}

  Work begin(const Tensor& numbers, const Tensor& into) override {
    const DType wire = site_.split.wire;
    Communicator& shards = site_.site.axes.shards;
    const int subject = site_.site.subject();
    const CombineOp sum = site_.split.is_pairwise ? CombineOp::pairwise_sum : CombineOp::sum;
    if (kind_ == StageKind::gather_sums) {
      received_ = empty(site_.site.context, {site_.split.whole}, wire, Purpose::bucket);
      const Span shard = site_.split.shard;
      sent_ = received_.slice(0, shard.begin, shard.end);
      const WorkTimer::Scope timing(site_.site.times.codec);
      kernels::copy_into(sent_, numbers);
    } else if (numbers.dtype() == wire) {
      sent_ = numbers;
    } else {
      const WorkTimer::Scope timing(site_.site.times.codec);
      sent_ = kernels::cast(numbers, wire);
    }
    switch (kind_) {
      case StageKind::gather_sums: return shards.all_gather(sent_, received_, subject);
      case StageKind::scatter_sums:
        received_ = into.defined() && into.dtype() == wire && sent_.raw() == numbers.raw()
                        ? into
                        : empty(site_.site.context, {site_.split.shard.count()}, wire, Purpose::bucket);
        return shards.reduce_scatter(sent_, received_, sum, subject);
      default:
        received_ = sent_;
        return (kind_ == StageKind::sum_replicas ? *site_.site.axes.replicas : shards).all_reduce(sent_, sum, subject);
    }
  }
  Tensor finish() override {
    sent_ = {};
    return std::exchange(received_, {});
  }

 private:
  StageKind kind_;
  StageSite site_;
  Tensor sent_, received_;
};

}  // namespace

std::unique_ptr<RunningStage> make_sum_stage(ReductionStage::Kind kind, const StageSite& site) {
  return std::make_unique<SumStage>(kind, site);
}

}  // namespace keel
