// How an optimizer's memory is made: states, what an update reads and writes of each unit, and ranges.

#include <algorithm>
#include <utility>

#include "keel/dist/parallel/optimizer_memory.h"
#include "keel/dist/parallel/state_slots.h"
#include "keel/kernels/elementwise.h"

namespace keel {

OptimizerMemory::OptimizerMemory(const Units& units, const Optimizer& optimizer, Communicator& deciders,
                                 const EngineSite& site)
    : units_(units),
      optimizer_(optimizer),
      site_(site),
      context_(site.update_context()),
      offloads_(site.offload),
      dtype_(site.options.policy.master_dtype()),
      pager_(site.pager) {
  if (const SharedNumber* shared = optimizer_.shared_number())
    shared_ = from_values(context_, std::vector<double>(static_cast<std::size_t>(shared->count), shared->initial),
                          {shared->count}, Purpose::workspace);
  make_sums(deciders);
  std::int64_t before = 0;    // numbers in the units before
  std::size_t parameter = 0;  // that are trained, in the units before with the same sums
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    const StateSlots slots(unit.layout(), unit.split(), optimizer_, site.options.groups);
    make_operands(i, slots);
    make_ranges(i, before, parameter, slots);
    if (!unit.trainable()) continue;
    before += unit.layout().numel;
    if (pager_ == nullptr) parameter += unit.layout().segments.size();
  }
  make_batches();
}

void OptimizerMemory::make_batches() {
  const RanksSite among{site_.axes.shards, context_, site_.context, site_.times.waited_ms};
  std::vector<const FlatBuffer*> layout;
  for (const auto& unit : units_) layout.push_back(&unit->layout());
  for (MatrixDeal& deal : deal_matrices(layout, optimizer_, site_.options, among.ranks.size())) {
    Batch& batch = batches_.emplace_back(Batch{.units = deal.units()});
    batch.matrices.emplace(optimizer_, std::move(deal), ranges_, among);
  }
  if (batches_.empty()) batches_.push_back({.units = {0, static_cast<std::int64_t>(units_.size())}});
  for (Batch& batch : batches_)
    for (Walk* walk : {&batch.prepare, &batch.update})
      if (pager_ != nullptr) make_walk(*walk, batch.units);
}

void OptimizerMemory::make_operands(std::size_t number, const StateSlots& slots) {
  ShardUnit& unit = *units_[number];
  std::vector<Tensor>& states = states_.emplace_back();
  std::vector<Operand>& operands = operands_.emplace_back();
  if (!unit.trainable()) return;
  const bool in_file = unit.split().files_state, takes_pieces = optimizer_.requirements().takes_pieces();
  const std::int64_t owned = unit.owned().count();
  const auto page_of = [&](const Tensor& state, std::string_view name) {
    const std::string named = concat(name, " of ", name_of_unit(unit.layout()));
    return state_pages_.emplace_back(std::make_unique<Page>(*pager_, state, named, number)).get();
  };
  operands = {{unit.parameters().update_values(), kWeightUses, unit.parameters().update_page()},
              {unit.parameters().own_master(), kWeightUses, unit.parameters().master_page()},
              {unit.gradient().own(), slots.gradient_uses(), unit.gradient().page()}};
  for (std::size_t kind = 0; kind < optimizer_.state_names().size(); ++kind) {
    states.push_back(empty(context_, {owned}, dtype_, in_file ? Purpose::bucket : Purpose::optimizer));
    kernels::fill(states.back(), optimizer_.initial_state(kind));
    operands.push_back({states.back(), slots.state_uses()});
    if (in_file) operands.back().page = page_of(states.back(), optimizer_.state_names()[kind]);
  }
  for (const StateSlot& slot : slots.all()) {
    const Tensor all = zeros(context_, {slot.elements}, slot.codes ? DType::u8 : dtype_, Purpose::bucket);
    operands.push_back({all, slot.uses(), page_of(all, slot.name)});
  }
  for (Operand& operand : operands) {
    if (operand.page == nullptr) continue;
    const Tensor& all = operand.page->numbers();
    operand.from_host = all.context() != context_;
    operand.in_pieces =
        operand.page->is_in_file() && takes_pieces && all.numel() == owned && context_.device().type == DeviceType::cpu;
  }
  for (Page* page : unit.parameters().pages())  // of a device's weights that the processor updates
    if (std::ranges::find(operands, page, &Operand::page) == operands.end())
      operands.push_back({page->numbers(), kWeightUses, page});
}

void OptimizerMemory::make_sums(Communicator& deciders) {
  unit_sums_.assign(units_.size(), nullptr);
  if (optimizer_.requirements().passes == 0) return;
  const auto add = [&](std::size_t first, std::size_t end) {
    std::vector<Dims> shapes;
    for (std::size_t i = first; i < end; ++i)
      for (const Segment& segment : units_[i]->layout().segments)
        if (units_[i]->trainable()) shapes.push_back(segment.shape);
    const RanksSite among{deciders, context_, site_.context, site_.times.waited_ms};
    sums_.push_back(
        std::make_unique<TensorSums>(optimizer_, shapes, among, site_.place.ranks, site_.place.virtual_ranks));
    for (std::size_t i = first; i < end; ++i)
      if (units_[i]->trainable()) unit_sums_[i] = sums_.back().get();
  };
  if (pager_ == nullptr) return add(0, units_.size());
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->trainable()) add(i, i + 1);
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
std::vector<Tensor> OptimizerMemory::make_parameter_state(std::size_t number, std::size_t at,
                                                          const ParameterGroup& group, const StateSlots& slots) {
  const ShardUnit& unit = *units_[number];
  const Segment& segment = unit.layout().segments[at];
  const Span own = overlap(span_of(segment), unit.owned());
  const std::size_t first_slot = kStates + states_[number].size();
  const std::vector<StateKind> kinds = optimizer_.parameter_state(segment.shape, group);
  std::vector<Tensor> kept;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const StateKind& kind = kinds[k];
    const Dims whole = kind.block == 1 ? segment.shape : Dims{kind.count(segment.numel)};
    TensorPart part{concat(kind.name, '.', segment.name), kind.shape.value_or(whole)};
    if (own.count() > 0) {
      const std::int64_t count = kind.count(own.count());
      const std::optional<StateSlots::Place> place = slots.place(at, k);
      part.begin = kind.shape ? 0 : (own.begin - segment.offset) / kind.block;
      part.values =
          place ? operands_[number][first_slot + place->slot].numbers.slice(0, place->begin, place->begin + count)
                : zeros(context_, {count}, kind.dtype(dtype_), Purpose::optimizer);
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
                                  const StateSlots& slots) {
  const auto first_range = static_cast<std::int64_t>(ranges_.size()),
             first_part = static_cast<std::int64_t>(parts_.size());
  const std::vector<Segment>& segments = units_[unit]->layout().segments;
  const bool one_by_one = optimizer_.requirements().one_by_one;
  const TensorSums* const sums = unit_sums_[unit];
  const auto group_of = [&](std::size_t at) { return keel::group_of(site_.options.groups, segments[at]); };
  for (std::size_t first = 0, last; first < segments.size() && units_[unit]->trainable(); first = last) {
    const ParameterGroup group = group_of(first);
    for (last = first + 1; !one_by_one && last < segments.size() && group_of(last) == group;) ++last;
    const std::int64_t begin = segments[first].offset, end = segments[last - 1].offset + segments[last - 1].numel;
    const Span owned = units_[unit]->owned();
    const std::vector<Tensor> kept =
        one_by_one ? make_parameter_state(unit, first, group, slots) : std::vector<Tensor>{};
    const auto add = [&](std::vector<ParameterRange>& to, const Span& among, int number = 0) {
      const Span span = overlap({begin, end}, among);
      if (span.count() == 0) return;
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

}  // namespace keel
