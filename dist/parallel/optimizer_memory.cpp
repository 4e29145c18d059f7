#include "keel/dist/parallel/optimizer_memory.h"

#include <algorithm>
#include <utility>

#include "keel/dist/parallel/row_sums.h"
#include "keel/kernels/elementwise.h"

namespace keel {

OptimizerMemory::OptimizerMemory(const Units& units, const Optimizer& optimizer, const GroupRule& groups,
                                 const Site& site)
    : units_(units),
      optimizer_(optimizer),
      context_(site.offloads ? site.context.host() : site.context),
      offloads_(site.offloads),
      dtype_(site.dtype),
      pager_(site.pager) {
  if (const SharedNumber* shared = optimizer_.shared_number())
    shared_ = from_values(context_, std::vector<double>(static_cast<std::size_t>(shared->count), shared->initial),
                          {shared->count}, Purpose::workspace);
  make_sums(site);
  std::int64_t before = 0;    // numbers in the units before
  std::size_t parameter = 0;  // that are trained, in the units before with the same sums
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    make_states(i);
    make_operands(i);
    make_ranges(i, before, parameter, groups);
    if (!unit.trainable()) continue;
    before += unit.layout().numel;
    if (pager_ == nullptr) parameter += unit.layout().segments.size();
  }
  make_matrices(groups, site);
  if (pager_ != nullptr) make_walk(site.budget);
}

void OptimizerMemory::make_matrices(const GroupRule& groups, const Site& site) {
  if (!optimizer_.requirements().matrices) return;
  std::vector<const FlatBuffer*> layout;
  for (const auto& unit : units_) layout.push_back(&unit->layout());
  MatrixDeal deal(layout, optimizer_, groups, site.shards.size(), site.is_sharded, dtype_, site.matrices);
  matrices_.emplace(optimizer_, std::move(deal), ranges_, context_, site.context, site.shards);
}

void OptimizerMemory::make_states(std::size_t number) {
  ShardUnit& unit = *units_[number];
  std::vector<Tensor>& states = states_.emplace_back();
  if (!unit.trainable()) return;
  const bool in_file = unit.split().files_state;
  for (std::size_t kind = 0; kind < optimizer_.state_names().size(); ++kind) {
    states.push_back(zeros(context_, {unit.owned().count()}, dtype_, in_file ? Purpose::bucket : Purpose::optimizer));
    if (const double initial = optimizer_.initial_state(kind); initial != 0) kernels::fill(states.back(), initial);
    if (!in_file) continue;
    const std::string name = concat(optimizer_.state_names()[kind], " of ", name_of_unit(unit.layout()));
    state_pages_.push_back(std::make_unique<Page>(*pager_, states.back(), name, number));
  }
}

void OptimizerMemory::make_operands(std::size_t number) {
  ShardUnit& unit = *units_[number];
  std::vector<Operand>& operands = operands_.emplace_back();
  std::vector<Page*>& pages = whole_pages_.emplace_back();
  if (pager_ == nullptr || !unit.trainable()) return;
  pages = unit.pages();
  operands = {{unit.parameters().update_values(), unit.parameters().update_page()},
              {unit.parameters().own_master(), unit.parameters().master_page()},
              {unit.gradient().own(), unit.gradient_page()}};
  const std::vector<Tensor>& states = states_[number];
  const bool in_file = unit.split().files_state;
  for (std::size_t kind = 0; kind < states.size(); ++kind) {
    Page* const page = in_file ? state_pages_[state_pages_.size() - states.size() + kind].get() : nullptr;
    operands.push_back({states[kind], page});
    if (in_file) pages.push_back(page);
  }
}

void OptimizerMemory::make_sums(const Site& site) {
  unit_sums_.assign(units_.size(), nullptr);
  if (optimizer_.requirements().passes == 0) return;
  std::vector<Dims> shapes;
  const auto add = [&] {
    sums_.push_back(std::make_unique<TensorSums>(optimizer_, shapes, context_, site.context, site.ranks, site.sharers,
                                                 site.virtual_ranks));
    shapes.clear();
  };
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->trainable()) continue;
    for (const Segment& segment : units_[i]->layout().segments) shapes.push_back(segment.shape);
    if (pager_ == nullptr) continue;
    add();
    unit_sums_[i] = sums_.back().get();
  }
  if (pager_ != nullptr) return;
  add();
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->trainable()) unit_sums_[i] = sums_.back().get();
}

double OptimizerMemory::waited_ms() const {
  double sum = matrices_ ? matrices_->waited_ms() : 0;
  for (const auto& sums : sums_) sum += sums->waited_ms();
  return sum;
}

// Elements of a unit that this rank owns, as the optimizer sees them.
ParameterRange OptimizerMemory::range_of(std::size_t unit, std::int64_t begin, std::int64_t end) const {
  const ShardUnit& own = *units_[unit];
  const auto cut = [&](const Tensor& flat) {
    return flat.defined() ? flat.slice(0, begin - own.owned().begin, end - own.owned().begin) : Tensor();
  };
  ParameterRange range{
      cut(own.parameters().update_values()), cut(own.parameters().own_master()), cut(own.gradient().own()), {}, {}};
  for (const Tensor& state : states_[unit]) range.state.push_back(cut(state));
  return range;
}

// What the optimizer keeps of one parameter besides, where this rank updates a part of it.
std::vector<Tensor> OptimizerMemory::make_parameter_state(const ShardUnit& unit, const Segment& segment,
                                                          const ParameterGroup& group) {
  const std::int64_t begin = std::max(segment.offset, unit.owned().begin);
  const std::int64_t end = std::min(segment.offset + segment.numel, unit.owned().end);
  std::vector<Tensor> kept;
  for (const StateKind& kind : optimizer_.parameter_state(segment.shape, group)) {
    const Dims whole = kind.block == 1 ? segment.shape : Dims{kind.count(segment.numel)};
    TensorPart part{concat(kind.name, '.', segment.name), kind.shape.value_or(whole)};
    if (begin < end) {
      part.begin = kind.shape ? 0 : (begin - segment.offset) / kind.block;
      part.values =
          zeros(unit.parameters().update_context(), {kind.count(end - begin)}, kind.dtype(dtype_), Purpose::optimizer);
      kept.push_back(part.values);
    }
    parameter_state_.push_back(part);
  }
  return kept;
}

// Neighbours of one group are updated as one range, as far as this rank owns them; unless the optimizer treats
// parameters one by one. `before`: numbers that are trained in the units before; `parameter`: parameters whose sums
// come before the unit's.
void OptimizerMemory::make_ranges(std::size_t unit, std::int64_t before, std::size_t parameter,
                                  const GroupRule& groups) {
  const auto first_range = static_cast<std::int64_t>(ranges_.size()),
             first_part = static_cast<std::int64_t>(parts_.size());
  const std::vector<Segment>& segments = units_[unit]->layout().segments;
  const bool one_by_one = optimizer_.requirements().one_by_one;
  const TensorSums* const sums = unit_sums_[unit];
  const auto group_of = [&](std::size_t at) { return keel::group_of(groups, segments[at]); };
  for (std::size_t first = 0, last; first < segments.size() && units_[unit]->trainable(); first = last) {
    const ParameterGroup group = group_of(first);
    for (last = first + 1; !one_by_one && last < segments.size() && group_of(last) == group;) ++last;
    const std::int64_t begin = segments[first].offset, end = segments[last - 1].offset + segments[last - 1].numel;
    const Span owned = units_[unit]->owned();
    const std::vector<Tensor> kept =
        one_by_one ? make_parameter_state(*units_[unit], segments[first], group) : std::vector<Tensor>{};
    const auto add = [&](std::vector<ParameterRange>& to, const Span& among, int number = 0) {
      const Span span{std::max(begin, among.begin), std::min(end, among.end)};
      if (span.begin >= span.end) return;
      to.push_back(range_of(unit, span.begin, span.end));
      to.back().group = group;
      to.back().first = before + span.begin;
      if (!one_by_one) return;
      to.back().shape = segments[first].shape;
      to.back().begin = span.begin - begin;
      const std::vector<StateKind> kinds = optimizer_.parameter_state(segments[first].shape, group);
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        const std::int64_t from = (span.begin - std::max(begin, owned.begin)) / kinds[k].block;
        to.back().state.push_back(kinds[k].shape ? kept[k]
                                                 : kept[k].slice(0, from, from + kinds[k].count(span.count())));
      }
      if (sums == nullptr) return;
      to.back().measured = sums->of_part(parameter + first, number);
      to.back().sums = sums->of_whole(parameter + first);
    };
    add(ranges_, owned);
    for (int i = 0; sums != nullptr && i < units_[unit]->split().virtual_ranks; ++i)
      add(parts_, units_[unit]->virtual_shard(i), i);
  }
  unit_ranges_.push_back({first_range, static_cast<std::int64_t>(ranges_.size())});
  unit_parts_.push_back({first_part, static_cast<std::int64_t>(parts_.size())});
}

void OptimizerMemory::update(const Tensor& state, const Updated& updated) {
  if (!walk_.steps.empty()) return update_from_files(state, updated);
  take_rows();
  if (matrices_) matrices_->begin(ranges_);
  if (offloads_) update_on_processor(state);
  else update_in_place(state);
  if (matrices_) matrices_->end(ranges_);
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->trainable()) updated(i);
}

void OptimizerMemory::update_in_place(const Tensor& state) {
  const StepInput input{.step = state, .shared = shared_};
  if (!sums_.empty()) sums_.front()->measure(parts_, ranges_, input);
  if (matrices_) matrices_->run(ranges_, input);
  optimizer_.update(ranges_, input);
  optimizer_.advance(input);
}

void OptimizerMemory::fill_values(std::size_t unit) const {
  const Span own = unit_ranges_[unit];
  optimizer_.fill_values(
      std::span(ranges_).subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.count())));
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
    range.rows = from_values(unit.parameters().update_context().host(), rows, {gradient.count()}, Purpose::workspace);
    range.gradient = kernels::to(gradient.values(), unit.parameters().update_context(), Purpose::workspace);
    if (offloads_) offload_bytes_ += static_cast<std::int64_t>(range.gradient.bytes());
  }
}

// The ranges of a unit, with a gradient that has come to the processor.
std::vector<ParameterRange> OptimizerMemory::with_gradients(std::span<const ParameterRange> ranges, Span of_unit,
                                                            std::size_t unit, const Tensor& gradient) const {
  std::vector<ParameterRange> moved;
  for (std::int64_t r = of_unit.begin; r < of_unit.end; ++r) {
    moved.push_back(ranges[static_cast<std::size_t>(r)]);
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
  for (const auto& unit : units_) {
    gradients.emplace_back();
    if (!unit->trainable() || unit->sparse()) continue;
    gradients.back() = HostCopy(unit->gradient().own());
    offload_bytes_ += static_cast<std::int64_t>(unit->gradient().own().bytes());
  }
  const StepInput input{.step = state.get(), .shared = shared_};
  const auto all_with_gradients = [&](std::span<const ParameterRange> ranges, std::span<const Span> of_units) {
    std::vector<ParameterRange> all;
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (units_[i]->trainable())
        for (ParameterRange& range : with_gradients(ranges, of_units[i], i, gradients[i].get()))
          all.push_back(std::move(range));
    return all;
  };
  if (!sums_.empty()) sums_.front()->measure(all_with_gradients(parts_, unit_parts_), ranges_, input);
  if (matrices_) matrices_->run(all_with_gradients(ranges_, unit_ranges_), input);
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
      for (const Segment& segment : units_[i]->layout().segments)
        parts.push_back(units_[i]->part(segment, concat(names[kind], '.', segment.name), states_[i][kind]));
  parts.insert(parts.end(), parameter_state_.begin(), parameter_state_.end());
  if (shared_.defined())
    parts.push_back({concat("shared.", optimizer_.shared_number()->name), shared_.shape(), 0, shared_});
  return parts;
}

}  // namespace keel
