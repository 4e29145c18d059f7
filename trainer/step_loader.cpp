#include "keel/trainer/step_loader.h"

#include <algorithm>
#include <utility>

#include "keel/data/divide_rows.h"
#include "keel/runtime/error.h"

namespace keel {

StepLoader::StepLoader(const Site& site, std::int64_t step) : site_(site), step_(step) {
  batches_.emplace(
      site_.source, step, [this](std::int64_t each) { return loaded_rows(divide(each)); },
      static_cast<int>(std::max<std::int64_t>(2, site_.micro_batches)),
      site_.context.stream().is_asynchronous() ? site_.context : Context(), site_.workers);
}

std::vector<Rows> StepLoader::divide(std::int64_t step) const {
  return divide_rows(site_.source->rows(step), site_.micro, site_.ranks.rank(), site_.ranks.size());
}

std::int64_t StepLoader::count(std::int64_t step) const { return std::ssize(divide(step)); }

std::vector<Batch> StepLoader::take() {
  std::vector<Batch> batches;
  for (const Rows range : divide(step_)) {
    const bool repeats = range.begin == range.end && !batches.empty() && batches.back().is_stand_in();
    if (repeats) {
      batches.push_back(batches.back());
      continue;
    }
    std::optional<Batch> batch = batches_->next();
    KEEL_CHECK(batch.has_value(), "the data has ended before step ", step_ + 1);
    batches.push_back(range.begin < range.end ? *std::move(batch) : batch->stand_in());
  }
  ++step_;
  return batches;
}

std::string StepLoader::look_ahead() {
  // A step of more rows than there may be is refused when it begins.
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(2, site_.micro_batches));
  return batches_->look_ahead(std::min(most, loaded_rows(divide(step_)).size()));
}

}  // namespace keel
