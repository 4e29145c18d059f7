// Stages that send bytes which a codec makes of each rank's numbers: int8, topk.

#include <utility>

#include "keel/dist/parallel/running_stage.h"
#include "keel/kernels/codec.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// Each rank's payload of shard i goes to rank i, or to all. Sums are taken in fp32 in the order of ranks.
class PayloadStage : public RunningStage {
 public:
  PayloadStage(bool gathers, const StageSite& site)
      : gathers_(gathers),
        site_(site),
        codec_(codec_of(site.site.compression)),
        ranks_(site.site.shards.size()),
        part_(site.split.shard.count()) {}

  Work begin(const Tensor& numbers, const Tensor&) override {
    const Context& context = site_.site.context;
    {
      const WorkTimer::Scope timing(site_.timer);
      sent_ = empty(context, {ranks_ * bytes()}, DType::u8, Purpose::bucket);
      kernels::encode({rows_of(numbers, 0, ranks_), rows_of(sent_, 0, ranks_), codec_});
      received_ = empty(context, {(gathers_ ? ranks_ : 1) * ranks_ * bytes()}, DType::u8, Purpose::bucket);
    }
    Communicator& ranks = site_.site.shards;
    return gathers_ ? ranks.all_gather(sent_, received_, site_.site.subject) : ranks.all_to_all(sent_, received_);
  }
  Tensor finish() override {
    const WorkTimer::Scope timing(site_.timer);
    const std::int64_t shards = gathers_ ? ranks_ : 1;  // that each rank has sent here
    const Tensor sum = zeros(site_.site.context, {shards * part_}, DType::f32, Purpose::workspace);
    for (std::int64_t r = 0; r < ranks_; ++r)
      kernels::decode_add({rows_of(sum, 0, shards), rows_of(received_, r * shards, shards), codec_});
    sent_ = received_ = {};
    // Blocks of numbers reach into gaps and padding, which stay zero whatever arrives.
    site_.layout.clear_gaps(gathers_ ? 0 : site_.split.shard.begin, sum);
    return sum;
  }

 private:
  std::int64_t bytes() const { return codec_.bytes(part_); }
  Tensor rows_of(const Tensor& flat, std::int64_t first, std::int64_t count) const {
    const std::int64_t length = flat.dtype() == DType::u8 ? bytes() : part_;
    return flat.slice(0, first * length, (first + count) * length).view({count, length});
  }

  bool gathers_;
  StageSite site_;
  Codec codec_;
  std::int64_t ranks_, part_;  // numbers of a shard
  Tensor sent_, received_;
};

}  // namespace

std::unique_ptr<RunningStage> make_payload_stage(ReductionStage::Kind kind, const StageSite& site) {
  return std::make_unique<PayloadStage>(kind == ReductionStage::Kind::gather_payloads, site);
}

}  // namespace keel
