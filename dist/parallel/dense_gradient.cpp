// A gradient in flat memory: whole, or whole while backward runs and then this rank's shard.

#include <optional>

#include "keel/dist/parallel/gradient_pages.h"
#include "keel/dist/parallel/partial_sums.h"
#include "keel/dist/parallel/unit_gradient.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

class DenseGradient : public UnitGradient {
 public:
  explicit DenseGradient(const UnitSite& unit) : unit_(unit), reducer_(unit) {
    const Context& context = unit.context;
    const UnitSplit& split = unit.split;
    FlatBuffer& buffer = unit.buffer;
    const DType dtype = split.gradient;
    // Memory that comes and goes is this rank's alone.
    buffer.gradient = split.shards_gradients || split.pages_gradient
                          ? empty(context, {split.whole}, dtype, Purpose::bucket)
                          : unit.axes.shards.allocate(context, split.whole, dtype, Purpose::gradient);
    buffer.clear_gaps(0, buffer.gradient);
    const bool apart = split.shards_gradients || split.adds_sums;
    if (apart)
      sum_ = empty(context, {split.shard.count()}, dtype, split.pages_sums ? Purpose::bucket : Purpose::gradient);
    own_ = apart && !split.gathers_sums() ? sum_ : buffer.gradient.slice(0, split.owned.begin, split.owned.end);
    if (!apart) sum_ = own_;
    if (split.pages_gradient || split.pages_sums) pages_ = std::make_unique<GradientPages>(buffer, split, unit, sum_);
    if (split.shards_gradients && !split.pages_gradient) come_and_go();
    if (split.virtual_ranks > 1)
      partial_sums_.emplace(split.virtual_ranks, split.whole, split.wire, context, unit.axes.shards);
  }

  void begin_reduce(double scale) override {
    unit_.buffer.complete_gradient();
    if (partial_sums_) {
      const WorkTimer::Scope timing(unit_.times.codec);
      partial_sums_->add(unit_.buffer.gradient);
    }
    if (pages_) pages_->begin_sum(begun_);
    if (reduces()) reducer_.begin(mine(), scale, begun_ ? Tensor() : sum_);
    else if (pages_) pages_->store_whole();  // what was completed
  }
  void continue_reduce() override {
    if (reduces()) reducer_.proceed();
  }
  void finish_reduce() override {
    if (!reduces() && !partial_sums_) return;
    if (is_complete()) take(reduces() ? reducer_.finish() : mine());
    if (unit_.split.shards_gradients || unit_.split.adds_sums || !is_complete()) unit_.buffer.zero_grad();
    if (unit_.split.shards_gradients && !unit_.split.pages_gradient) unit_.buffer.gradient.storage()->drop();
    if (pages_) pages_->end_sum();
  }
  void store() override {
    if (pages_) pages_->store_whole();
  }
  void store_changes() override {
    if (pages_) pages_->store_changes();
  }
  void gather_sums() override {
    if (unit_.split.gathers_sums()) gathering_ = unit_.axes.shards.all_gather(sum_, own_, unit_.subject());
  }
  void wait_sums() override { unit_.times.wait(gathering_); }
  void zero() override {
    unit_.buffer.zero_grad();
    begun_ = false;
    if (partial_sums_) partial_sums_->restart();
    if (pages_) pages_->forget();
    reducer_.end_step(false);
  }

  Reducer* reducer() override { return &reducer_; }
  Page* page() override { return pages_ ? pages_->own() : nullptr; }
  Tensor noted() const override { return pages_ ? pages_->noted() : Tensor(); }

 private:
  // Whether the rank has added up what it brings to the sum over ranks.
  bool is_complete() const { return !partial_sums_ || partial_sums_->is_complete(); }
  const Tensor& mine() const { return partial_sums_ ? partial_sums_->total() : unit_.buffer.gradient; }
  bool reduces() const { return !unit_.split.reduction.stages.empty() && is_complete(); }
  void take(const Tensor& sum) {
    if (pages_) pages_->wait_for_sum();
    if (sum.raw() != sum_.raw()) {
      const WorkTimer::Scope timing(unit_.times.codec);
      if (begun_) kernels::accumulate(sum_, sum);
      else kernels::copy_into(sum_, sum);
    }
    begun_ = true;
  }
  // The first contribution of a backward pass brings the memory of the whole gradient; finish_reduce() gives it back.
  void come_and_go() {
    Storage& storage = *unit_.buffer.gradient.storage();
    storage.drop();
    storage.set_touch_hook([this](Storage& gradient) {
      if (gradient.resident()) return;
      gradient.restore();
      unit_.buffer.clear_gaps(0, unit_.buffer.gradient);
    });
  }

  const UnitSite& unit_;
  Reducer reducer_;
  std::optional<PartialSums> partial_sums_;  // over the rank's virtual ranks, where it has several
  Tensor sum_;          // where finish_reduce() leaves the sum over ranks: own_, or the shard that is gathered to it
  bool begun_ = false;  // it holds a sum of this step
  Work gathering_;
  std::unique_ptr<GradientPages> pages_;  // of what lies elsewhere
};

}  // namespace

std::unique_ptr<UnitGradient> make_dense_gradient(const UnitSite& unit) {
  return std::make_unique<DenseGradient>(unit);
}

}  // namespace keel
