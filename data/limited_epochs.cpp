#include "keel/data/limited_epochs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

class LimitedEpochs final : public BatchSource {
 public:
  LimitedEpochs(std::shared_ptr<const BatchSource> source, std::int64_t limit, std::int64_t whole)
      : source_(std::move(source)), limit_(limit), whole_(whole) {}
  std::int64_t steps() const override {
    const std::int64_t all = source_->steps();
    return all == kEndless ? kEndless : all / whole_ * limit_ + std::min(all % whole_, limit_);
  }
  double steps_per_epoch() const override { return static_cast<double>(limit_); }
  std::int64_t rows(std::int64_t step) const override { return source_->rows(its(step)); }
  Batch load(std::int64_t step, Rows range) const override { return source_->load(its(step), range); }
  std::string fingerprint() const override {
    return concat(source_->fingerprint(), ", ", limit_, " of ", whole_, " steps of each epoch");
  }

 private:
  std::int64_t its(std::int64_t step) const { return step / limit_ * whole_ + step % limit_; }

  std::shared_ptr<const BatchSource> source_;
  std::int64_t limit_, whole_;  // steps of an epoch
};

}  // namespace

std::shared_ptr<const BatchSource> limited_epochs(std::shared_ptr<const BatchSource> source, std::int64_t steps) {
  const double whole = source->steps_per_epoch();
  KEEL_CHECK(whole > 0, "this data has no epochs, as its rows are drawn without end; `steps` says how long a run is");
  KEEL_CHECK(whole == std::floor(whole), "its epochs of ", whole, " steps end inside of steps");
  KEEL_CHECK(steps >= 1, "an epoch of ", steps, " steps has nothing to train on");
  const auto all = static_cast<std::int64_t>(whole);
  if (steps >= all) return source;
  return std::make_shared<LimitedEpochs>(std::move(source), steps, all);
}

}  // namespace keel
