// An update whose weights, gradients or states lie in files: a unit after the other, which is read ahead and written
// behind.

#include "keel/dist/parallel/optimizer_memory.h"

namespace keel {

void OptimizerMemory::make_walk(std::int64_t budget) {
  std::vector<WalkedUnit> bytes;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->trainable()) continue;
    walked_.push_back(i);
    bytes.emplace_back();
    for (const Page* page : pages_[i]) {
      bytes.back().read += page->bytes();
      if (page != units_[i]->gradient_page()) bytes.back().written += page->bytes();
    }
  }
  walk_ = walk_update(bytes, budget);
}

// A page that cannot be read leaves its unit as it is. The ranks go on sharing units, so that all come to where they
// agree on the failure.
void OptimizerMemory::update_from_files(const Tensor& decided, const Updated& updated) {
  pager_->take_back();
  const HostCopy of_host = offloads_ ? HostCopy(decided) : HostCopy();
  const StepInput input{.step = offloads_ ? of_host.get() : decided, .shared = shared_};
  std::vector<HostCopy> gradients(units_.size());
  for (const WalkStep& step : walk_.steps) {
    const std::size_t number = walked_[step.unit];
    ShardUnit& unit = *units_[number];
    const std::vector<Page*>& pages = pages_[number];
    if (step.kind == WalkStep::Kind::fetch) {
      for (Page* page : pages) page->fetch();
      if (!offloads_) continue;
      gradients[number] = HostCopy(unit.gradient().own());
      offload_bytes_ += static_cast<std::int64_t>(unit.gradient().own().bytes());
    } else if (step.kind == WalkStep::Kind::settle) {
      for (Page* page : pages) page->settle();
    } else {
      bool is_there = true;
      for (Page* page : pages) is_there &= page->wait();
      if (is_there) update_unit(number, offloads_ ? gradients[number].get() : Tensor(), input);
      gradients[number] = {};
      updated(number);
      for (Page* page : pages)
        if (is_there && page != unit.gradient_page()) page->store();
        else page->drop();
    }
  }
  optimizer_.advance(input);
}

// `gradient`: as it came to the processor, where the optimizer works there for a device.
void OptimizerMemory::update_unit(std::size_t number, const Tensor& gradient, const StepInput& input) {
  const Span own = unit_ranges_[number];
  const std::span ranges = std::span<const ParameterRange>(ranges_).subspan(static_cast<std::size_t>(own.begin),
                                                                            static_cast<std::size_t>(own.count()));
  if (!offloads_) return optimizer_.update(ranges, input);
  optimizer_.update(with_gradients(ranges_, own, number, gradient), input);
  units_[number]->parameters().send_values();
  offload_bytes_ += static_cast<std::int64_t>(units_[number]->parameters().own_values().bytes());
}

}  // namespace keel
