#include "keel/dist/parallel/optimizer_memory.h"

#include <utility>

#include "keel/kernels/elementwise.h"

namespace keel {

void OptimizerMemory::update(const Tensor& state, const Updated& updated) {
  if (pager_ != nullptr) return update_from_files(state, updated);
  take_rows();
  const auto& matrices = batches_.front().matrices;
  if (matrices) matrices->begin(ranges_);
  if (offloads_) update_on_processor(state);
  else update_in_place(state);
  if (matrices) matrices->end(ranges_);
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->trainable()) updated(i);
}

void OptimizerMemory::update_in_place(const Tensor& state) {
  const StepInput input{.step = state, .shared = shared_};
  if (!sums_.empty()) sums_.front()->measure(parts_, ranges_, input);
  if (auto& matrices = batches_.front().matrices) {
    optimizer_.prepare(ranges_, input);
    matrices->run(ranges_);
  }
  optimizer_.update(ranges_, input);
  optimizer_.advance(input);
}

void OptimizerMemory::fill_values(std::size_t unit) const {
  optimizer_.fill_values(ranges_in(ranges_, unit_ranges_[unit]));
}

// Gives the ranges of tables whose gradients are kept as rows those of this step, where the optimizer works. Such a
// unit is one table, whose range is whole rows.
void OptimizerMemory::take_rows() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    if (!unit.sparse() || unit_ranges_[i].count() == 0) continue;
    ParameterRange& range = ranges_[static_cast<std::size_t>(unit_ranges_[i].begin)];
    const RowGradient& gradient = unit.gradient().own_rows();
    std::vector<std::int64_t> rows(gradient.rows().begin(), gradient.rows().end());
    for (std::int64_t& row : rows) row -= rows_of(unit.layout(), unit.owned()).begin;
    range.rows = from_values(context_.host(), rows, {gradient.count()}, Purpose::workspace);
    range.gradient = kernels::to(gradient.values(), context_, Purpose::workspace);
    if (offloads_) offload_bytes_ += static_cast<std::int64_t>(range.gradient.bytes());
  }
}

HostCopy OptimizerMemory::bring_gradient(const Tensor& gradient) {
  offload_bytes_ += static_cast<std::int64_t>(gradient.bytes());
  return {gradient, empty(context_, gradient.shape(), gradient.dtype(), Purpose::bucket)};
}

// The ranges of a unit, with a gradient that has come to the processor.
std::vector<ParameterRange> OptimizerMemory::with_gradients(const std::vector<ParameterRange>& ranges, Span of_unit,
                                                            std::size_t unit, const Tensor& gradient) const {
  std::vector<ParameterRange> moved;
  for (const ParameterRange& range : ranges_in(ranges, of_unit)) {
    moved.push_back(range);
    if (units_[unit]->sparse()) continue;  // take_rows() has brought it
    const std::int64_t begin = moved.back().gradient.offset() - units_[unit]->gradient().own().offset();
    moved.back().gradient = gradient.slice(0, begin, begin + moved.back().gradient.numel());
  }
  return moved;
}

// Gradients come to the processor while it updates the units before, and values go back while it updates the next. An
// optimizer that measures or transforms needs all gradients first.
void OptimizerMemory::update_on_processor(const Tensor& decided) {
  const HostCopy state(decided);
  std::vector<HostCopy> gradients;
  for (const auto& unit : units_)
    gradients.push_back(unit->trainable() && !unit->sparse() ? bring_gradient(unit->gradient().own()) : HostCopy());
  const StepInput input{.step = state.get(), .shared = shared_};
  const auto all_with_gradients = [&](const std::vector<ParameterRange>& ranges, std::span<const Span> of_units) {
    std::vector<ParameterRange> all;
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (units_[i]->trainable())
        for (ParameterRange& range : with_gradients(ranges, of_units[i], i, gradients[i].get()))
          all.push_back(std::move(range));
    return all;
  };
  if (!sums_.empty()) sums_.front()->measure(all_with_gradients(parts_, unit_parts_), ranges_, input);
  if (auto& matrices = batches_.front().matrices) {
    optimizer_.prepare(all_with_gradients(ranges_, unit_ranges_), input);
    matrices->run(ranges_);
  }
  for (std::size_t i = 0; i < units_.size(); ++i) {
    ShardUnit& unit = *units_[i];
    if (!unit.trainable()) continue;
    optimizer_.update(with_gradients(ranges_, unit_ranges_[i], i, unit.sparse() ? Tensor() : gradients[i].get()),
                      input);
    unit.parameters().send_values();
    offload_bytes_ += static_cast<std::int64_t>(unit.parameters().own_values().bytes());
  }
  optimizer_.advance(input);
}

void OptimizerMemory::forget_rows() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->sparse() || unit_ranges_[i].count() == 0) continue;
    ParameterRange& range = ranges_[static_cast<std::size_t>(unit_ranges_[i].begin)];
    range.rows = range.gradient = Tensor();
  }
}

TensorParts OptimizerMemory::parts() const {
  TensorParts parts;
  const std::vector<std::string_view> names = optimizer_.state_names();
  for (std::size_t i = 0; i < units_.size(); ++i)
    for (std::size_t kind = 0; kind < states_[i].size(); ++kind)
      units_[i]->add_parts(parts, concat(names[kind], '.'), states_[i][kind]);
  parts.insert(parts.end(), parameter_state_.begin(), parameter_state_.end());
  if (shared_.defined())
    parts.push_back({concat("shared.", optimizer_.shared_number()->name), shared_.shape(), 0, shared_});
  return parts;
}

}  // namespace keel
