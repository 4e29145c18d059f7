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
  const std::int64_t of_each = site_.virtual_ranks;
  return divide_rows_in_turn(site_.source->rows(step), site_.micro, site_.rank, site_.ranks * of_each, of_each);
}

std::int64_t StepLoader::count(std::int64_t step) const { return std::ssize(divide(step)); }

std::int64_t StepLoader::begin() {
  rows_ = divide(step_++);
  given_ = 0;
  stand_in_ = {};
  return std::ssize(rows_);
}

Batch StepLoader::next() {
  KEEL_CHECK(given_ < rows_.size(), "step ", step_, " has ", rows_.size(), " micro-batches, and no more");
  const Rows range = rows_[given_++];
  const bool is_empty = range.begin == range.end;
  if (is_empty && stand_in_.rows() > 0) return stand_in_;
  std::optional<Batch> batch = batches_->next();
  KEEL_CHECK(batch.has_value(), "the data has ended before step ", step_);
  if (!is_empty) return *std::move(batch);
  return stand_in_ = batch->stand_in();
}

std::vector<Batch> StepLoader::take() {
  std::vector<Batch> batches;
  for (std::int64_t left = begin(); left > 0; --left) batches.push_back(next());
  return batches;
}

std::string StepLoader::look_ahead() {
  // A step of more rows than there may be is refused when it begins.
  const auto most = static_cast<std::size_t>(site_.micro_batches);
  return batches_->look_ahead(std::min(most, loaded_rows(divide(step_)).size()));
}

}  // namespace keel
