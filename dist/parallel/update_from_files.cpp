// An update whose weights, gradients or states lie in files: a piece after the other, which is read ahead and written
// behind. Where matrices are transformed, a walk of its own prepares them.

#include <algorithm>
#include <deque>
#include <utility>

#include "keel/dist/parallel/optimizer_memory.h"
#include "keel/dist/parallel/page_piece.h"
#include "keel/dist/parallel/state_slots.h"

namespace keel {

// Pages come and go a piece at a time where the processor updates all of their numbers, each for itself. Others are
// there from the first piece of their unit to the last.
void OptimizerMemory::make_walk(Walk& walk, Span among) const {
  std::vector<WalkedUnit> units;
  for (auto i = static_cast<std::size_t>(among.begin); i < static_cast<std::size_t>(among.end); ++i) {
    const std::vector<Operand>& operands = operands_[i];
    const auto is_used = [&](const Operand& operand) { return operand.uses.*walk.of != PageUse::none; };
    if (!std::ranges::any_of(operands, is_used)) continue;
    walk.units.push_back(i);
    WalkedUnit& unit = units.emplace_back(WalkedUnit{.elements = units_[i]->owned().count()});
    for (const Operand& operand : operands) {
      if (operand.in_pieces) unit.add(operand.uses.*walk.of, true, width_of(operand.page->numbers().dtype()));
      else if (operand.comes_whole(walk.of)) unit.add(operand.uses.*walk.of, false, operand.page->bytes());
    }
  }
  walk.order = walk_update(units, pager_->piece(), site_.options.sharding.offload_budget);
}

// One walk. What cannot be read leaves its piece as it is, and the ranks go on sharing units and matrices, so that all
// come to where they agree on the failure.
class OptimizerMemory::WalkOverFiles {
 public:
  WalkOverFiles(OptimizerMemory& memory, const Walk& walk, const StepInput& input, const Updated& updated)
      : memory_(memory), walk_(walk), prepares_(walk.of == &WalkUses::prepare), input_(input), updated_(updated) {}

  void fetch(const WalkStep& step) {
    Piece& piece = arriving_.emplace_back();
    if (step.is_first()) {
      fetched_gradient_.reset();
      for_each_whole(step, [&](const Operand& whole) {
        if (whole.from_host)
          fetched_gradient_ = std::make_shared<PagePiece>(*whole.page, Span{0, whole.page->numbers().numel()});
        else whole.page->fetch();
      });
    }
    piece.whole_gradient = fetched_gradient_;
    if (step.is_last) fetched_gradient_.reset();
    for (const Operand& operand : operands(step)) {
      const bool comes = operand.in_pieces && use_of(operand) != PageUse::none;
      piece.parts.push_back(comes ? std::make_unique<PagePiece>(*operand.page, step.piece) : nullptr);
    }
    if (!memory_.offloads_ || !takes_gradient(step) || operands(step)[kGradient].from_host) return;
    const Tensor& gradient = operands(step)[kGradient].numbers;
    piece.gradient = memory_.bring_gradient(gradient.slice(0, step.piece.begin, step.piece.end));
  }

  void update(const WalkStep& step) {
    Piece piece = std::move(arriving_.front());
    arriving_.pop_front();
    if (step.is_first()) {
      has_whole_ = true;
      for_each_whole(step, [&](const Operand& whole) {
        has_whole_ &= whole.from_host ? piece.whole_gradient->wait() : whole.page->wait();
      });
    }
    bool is_there = has_whole_;
    for (const auto& part : piece.parts) is_there &= !part || part->wait();
    if (!prepares_) measure(step, piece);
    if (is_there) work_on(step, piece);
    piece.gradient = {};
    piece.whole_gradient.reset();
    if (step.is_last && !prepares_) updated_(number_of(step));
    write_behind(step, piece, is_there);
    leaving_.push_back(std::move(piece));
  }

  void settle(const WalkStep& step) {
    for (const auto& part : leaving_.front().parts)
      if (part) part->wait();
    leaving_.pop_front();
    if (!step.is_last) return;
    for_each_whole(step, [](const Operand& whole) {
      if (!whole.from_host) whole.page->settle();
    });
  }

 private:
  // What is in memory of a piece.
  struct Piece {
    std::vector<std::unique_ptr<PagePiece>> parts;  // by operand; null: that one is whole, or not used
    HostCopy gradient;                              // where the optimizer works for a device
    // The page of a gradient that is used whole where it was read, in all pieces of its unit.
    std::shared_ptr<PagePiece> whole_gradient;
  };

  std::size_t number_of(const WalkStep& step) const { return walk_.units[step.unit]; }
  std::span<const Operand> operands(const WalkStep& step) const { return memory_.operands_[number_of(step)]; }
  PageUse use_of(const Operand& operand) const { return operand.uses.*walk_.of; }
  // Calls f(operand) for those whose pages are whole while the unit is walked over.
  template <class F>
  void for_each_whole(const WalkStep& step, const F& f) const {
    for (const Operand& operand : operands(step))
      if (operand.comes_whole(walk_.of)) f(operand);
  }
  bool takes_gradient(const WalkStep& step) const { return use_of(operands(step)[kGradient]) != PageUse::none; }

  // Of an optimizer that measures, which has units whole. All ranks add their sums, whatever is there of them.
  void measure(const WalkStep& step, const Piece& piece) {
    const std::size_t number = number_of(step);
    TensorSums* const sums = memory_.unit_sums_[number];
    if (sums == nullptr) return;
    const std::span ranges = ranges_in(memory_.ranges_, memory_.unit_ranges_[number]);
    const Span parts = memory_.unit_parts_[number];
    if (memory_.offloads_)
      sums->measure(memory_.with_gradients(memory_.parts_, parts, number, gradient_of(step, piece)), ranges, input_);
    else sums->measure(ranges_in(memory_.parts_, parts), ranges, input_);
  }

  void work_on(const WalkStep& step, const Piece& piece) {
    if (prepares_) return memory_.optimizer_.prepare(ranges_of(step, piece), input_);
    memory_.optimizer_.update(ranges_of(step, piece), input_);
    UnitParameters& parameters = memory_.units_[number_of(step)]->parameters();
    parameters.own_values().mark_written();
    if (!memory_.offloads_) return;
    const Tensor values = cut(step, piece, operands(step)[kValues].numbers, step.piece);
    parameters.send_values(step.piece, values);
    memory_.offload_bytes_ += static_cast<std::int64_t>(values.bytes());
  }

  // These elements of numbers that lie in an operand, or elsewhere: in the piece, where it has them.
  Tensor cut(const WalkStep& step, const Piece& piece, const Tensor& numbers, Span elements) const {
    if (!numbers.defined()) return {};
    for (std::size_t i = 0; i < piece.parts.size(); ++i) {
      const Tensor& whole = operands(step)[i].numbers;
      if (!piece.parts[i] || whole.storage() != numbers.storage()) continue;
      const std::int64_t begin = numbers.offset() - whole.offset() + elements.begin - step.piece.begin;
      return piece.parts[i]->numbers().slice(0, begin, begin + elements.count());
    }
    return numbers.slice(0, elements.begin, elements.end);
  }

  // A piece of the gradient, where the optimizer works for a device.
  Tensor gradient_of(const WalkStep& step, const Piece& piece) const {
    const Operand& operand = operands(step)[kGradient];
    if (!operand.from_host) return piece.gradient.get();
    if (piece.parts[kGradient]) return piece.parts[kGradient]->numbers();
    const Tensor& whole = piece.whole_gradient ? piece.whole_gradient->numbers() : operand.page->on_host();
    const std::int64_t begin = operand.numbers.offset() + step.piece.begin;
    return whole.slice(0, begin, begin + step.piece.count());
  }

  // What the optimizer works on of a piece.
  std::vector<ParameterRange> ranges_of(const WalkStep& step, const Piece& piece) const {
    const std::int64_t first = operands(step)[kValues].numbers.offset();
    std::vector<ParameterRange> parts;
    for (const ParameterRange& range : ranges_in(memory_.ranges_, memory_.unit_ranges_[number_of(step)])) {
      const std::int64_t begin = range.parameter.offset() - first, count = range.parameter.numel();
      const Span mine = overlap({begin, begin + count}, step.piece), in_range{mine.begin - begin, mine.end - begin};
      if (mine.count() == 0) continue;
      ParameterRange& part = parts.emplace_back(range);
      for (Tensor* each : {&part.parameter, &part.master, &part.gradient, &part.matrix})
        *each = cut(step, piece, *each, in_range);
      if (memory_.offloads_ && takes_gradient(step))
        part.gradient = gradient_of(step, piece).slice(0, mine.begin - step.piece.begin, mine.end - step.piece.begin);
      for (Tensor& state : part.state)  // those of other extents belong to units that come whole
        if (state.numel() == count) state = cut(step, piece, state, in_range);
      part.first += in_range.begin;
      part.begin += in_range.begin;
    }
    return parts;
  }

  void write_behind(const WalkStep& step, Piece& piece, bool is_there) {
    for (std::size_t i = 0; i < piece.parts.size(); ++i) {
      std::unique_ptr<PagePiece>& part = piece.parts[i];
      if (part && is_there && use_of(operands(step)[i]) == PageUse::updated) part->store();
      else part.reset();
    }
    if (!step.is_last) return;
    for_each_whole(step, [&](const Operand& whole) {
      if (whole.from_host) return;
      if (has_whole_ && use_of(whole) == PageUse::updated) whole.page->store();
      else whole.page->drop();
    });
  }

  OptimizerMemory& memory_;
  const Walk& walk_;
  bool prepares_;
  const StepInput& input_;
  const Updated& updated_;
  std::deque<Piece> arriving_, leaving_;
  std::shared_ptr<PagePiece> fetched_gradient_;  // of the unit whose pieces are being read
  bool has_whole_ = true;                        // what is whole of the unit that is worked on
};

void OptimizerMemory::update_from_files(const Tensor& decided, const Updated& updated) {
  pager_->take_back();
  const HostCopy of_host = offloads_ ? HostCopy(decided) : HostCopy();
  const StepInput input{.step = offloads_ ? of_host.get() : decided, .shared = shared_};
  const auto walk = [&](const Walk& each) {
    WalkOverFiles walker(*this, each, input, updated);
    run_walk(each.order, walker);
  };
  for (Batch& batch : batches_) {
    if (batch.matrices) {
      batch.matrices->begin(ranges_);
      walk(batch.prepare);
      batch.matrices->run(ranges_);
    }
    walk(batch.update);
    if (batch.matrices) batch.matrices->end(ranges_);
  }
  optimizer_.advance(input);
}

}  // namespace keel
