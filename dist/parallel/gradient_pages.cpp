#include "keel/dist/parallel/gradient_pages.h"

#include "keel/kernels/elementwise.h"

namespace keel {

GradientPages::GradientPages(FlatBuffer& buffer, const UnitSplit& split, const UnitSite& site, const Tensor& sums)
    : buffer_(buffer),
      split_(split),
      pager_(*site.pager),
      sums_(sums),
      state_(kernels::make_step_state(site.context)),
      blank_(kernels::make_step_state(site.context)) {
  const auto page_of = [&](const Tensor& numbers, std::string_view what) {
    return std::make_unique<Page>(pager_, numbers, concat(what, " of ", name_of_unit(buffer)), site.number,
                                  split.files_gradients, Purpose::gradient);
  };
  if (split.pages_gradient) {
    whole_page_ = page_of(buffer.gradient, "gradient");
    whole_page_->when_touched([this] { return bring_whole(); });
  }
  if (split.pages_sums) sums_page_ = page_of(sums, "sums of gradients");
}

// For the first contribution of a pass, or for a reader.
bool GradientPages::bring_whole() {
  if (holds_passes_) {
    whole_page_->wait();
  } else {
    whole_page_->make();
    buffer_.clear_gaps(0, buffer_.gradient);
  }
  return true;
}

void GradientPages::store_whole() {
  if (whole_page_->is_away()) return;
  holds_passes_ = true;
  if (!sums_page_) note(buffer_.gradient.slice(0, split_.shard.begin, split_.shard.end));
  pager_.leave(*whole_page_);
}

void GradientPages::begin_sum(bool adds) {
  if (!sums_page_) return;
  if (adds) sums_page_->fetch();
  else sums_page_->make();
}

void GradientPages::wait_for_sum() {
  if (sums_page_) sums_page_->wait();
}

void GradientPages::end_sum() {
  if (!sums_page_) return store_whole();
  if (whole_page_) whole_page_->discard();  // the sums have it
  holds_passes_ = false;
  note(sums_);
  pager_.leave(*sums_page_);
}

void GradientPages::note(const Tensor& shard) {
  const std::int64_t numbers = overlap({0, buffer_.numel}, split_.shard).count();
  kernels::copy_into(state_, blank_);
  kernels::add_squares(shard.slice(0, 0, numbers), state_, split_.shard.begin);
  has_noted_ = true;
}

void GradientPages::forget() {
  has_noted_ = false;
  holds_passes_ = false;
  for (const auto& page : {whole_page_.get(), sums_page_.get()})
    if (page != nullptr) page->discard();
}

}  // namespace keel
