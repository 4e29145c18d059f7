#include "keel/dist/parallel/gatherer.h"

#include <utility>

#include "keel/kernels/codec.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

class PlainGatherer : public Gatherer {
 public:
  explicit PlainGatherer(const UnitSite& unit) : unit_(unit) {}
  Work begin(const Tensor& own, const Tensor& whole) override {
    return unit_.axes.shards.all_gather(own, whole, unit_.subject());
  }

 private:
  const UnitSite& unit_;
};

// Shards travel as a codec's bytes, and every rank decodes all of them, its own among them: qwZ of Wang et al. 2023
// (ZeRO++). A rank that owns everything does the same without a message.
class CodedGatherer : public Gatherer {
 public:
  explicit CodedGatherer(const UnitSite& unit)
      : unit_(unit), ranks_(unit.axes.shards), codec_(codec_of(unit.split.code)), part_(unit.split.shard.count()) {}

  Work begin(const Tensor& own, const Tensor& whole) override {
    whole_ = whole;
    const std::int64_t shards = own.numel() == whole.numel() ? ranks_.size() : 1;
    {
      const WorkTimer::Scope timing(unit_.times.codec);
      const Tensor numbers = empty(own.context(), {shards, part_}, DType::f32, Purpose::workspace);
      kernels::copy_into(numbers.flatten(), own);
      payloads_ = empty(own.context(), {shards * bytes()}, DType::u8, Purpose::bucket);
      kernels::encode({numbers, payloads_.view({shards, bytes()}), codec_});
    }
    if (shards == ranks_.size()) return {};
    own_payload_ =
        std::exchange(payloads_, empty(own.context(), {ranks_.size() * bytes()}, DType::u8, Purpose::bucket));
    return ranks_.all_gather(own_payload_, payloads_, unit_.subject());
  }
  void finish() override {
    const WorkTimer::Scope timing(unit_.times.codec);
    const std::int64_t shards = ranks_.size();
    const Tensor numbers = zeros(whole_.context(), {shards, part_}, DType::f32, Purpose::workspace);
    kernels::decode_add({numbers, payloads_.view({shards, bytes()}), codec_});
    kernels::copy_into(whole_, numbers.flatten());
    own_payload_ = payloads_ = whole_ = {};
  }

 private:
  std::int64_t bytes() const { return codec_.bytes(part_); }

  const UnitSite& unit_;
  Communicator& ranks_;
  Codec codec_;
  std::int64_t part_;  // numbers of a shard
  Tensor own_payload_, payloads_, whole_;
};

// Keeps a shard of the subgroup's, and gathers from there until the weights change: hpZ of the same.
class SecondaryGatherer : public Gatherer {
 public:
  SecondaryGatherer(std::unique_ptr<Gatherer> first, const UnitSite& unit)
      : first_(std::move(first)),
        unit_(unit),
        inside_(*unit.axes.inside),
        place_(part({0, unit.split.whole}, inside_.size(), inside_.rank())),
        shard_(empty(unit.context, {place_.count()}, unit.split.values, Purpose::parameter)) {}

  Work begin(const Tensor& own, const Tensor& whole) override {
    if (is_fresh_) return inside_.all_gather(shard_, whole, unit_.subject());
    whole_ = whole;
    return first_->begin(own, whole);
  }
  void finish() override {
    if (std::exchange(is_fresh_, true)) return;
    first_->finish();
    kernels::copy_into(shard_, whole_.slice(0, place_.begin, place_.end));
    whole_ = {};
  }
  void weights_change() override { is_fresh_ = false; }

 private:
  std::unique_ptr<Gatherer> first_;
  const UnitSite& unit_;
  Communicator& inside_;
  Span place_;
  Tensor shard_, whole_;
  bool is_fresh_ = false;  // the shard has the weights that are
};

}  // namespace

std::unique_ptr<Gatherer> make_gatherer(const UnitSite& unit) {
  std::unique_ptr<Gatherer> gatherer;
  if (unit.split.code == WeightCode::exact) gatherer = std::make_unique<PlainGatherer>(unit);
  else gatherer = std::make_unique<CodedGatherer>(unit);
  if (unit.split.secondary == 0) return gatherer;
  return std::make_unique<SecondaryGatherer>(std::move(gatherer), unit);
}

}  // namespace keel
