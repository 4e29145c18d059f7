// An update whose weights, gradients or states lie in files: a piece after the other, which is read ahead and written
// behind.

#include <algorithm>
#include <deque>
#include <utility>

#include "keel/dist/parallel/optimizer_memory.h"
#include "keel/dist/parallel/page_piece.h"

namespace keel {

// Pages come and go a piece at a time where the processor updates all of their numbers, each for itself. Others are
// there from the first piece of their unit to the last.
void OptimizerMemory::make_walk(std::int64_t budget) {
  std::vector<WalkedUnit> units;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->trainable()) continue;
    walked_.push_back(i);
    WalkedUnit& unit = units.emplace_back();
    unit.elements = units_[i]->owned().count();
    std::vector<Page*>& whole = whole_pages_[i];
    const Page* const gradient = units_[i]->gradient_page();
    for (Operand& operand : operands_[i]) {
      if (operand.page == nullptr) continue;
      const Tensor& all = operand.page->numbers();
      operand.in_pieces =
          !optimizer_.requirements().one_by_one && all.numel() == unit.elements && all.device().type == DeviceType::cpu;
      if (!operand.in_pieces) continue;
      std::erase(whole, operand.page);
      const auto width = static_cast<std::int64_t>(size_of(all.dtype()));
      unit.read += width;
      unit.written += operand.page == gradient ? 0 : width;
    }
    for (const Page* page : whole) {
      unit.whole_read += page->bytes();
      unit.whole_written += page == gradient ? 0 : page->bytes();
    }
  }
  walk_ = walk_update(units, pager_->piece(), budget);
}

// One update. What cannot be read leaves its piece as it is, and the ranks go on sharing units, so that all come to
// where they agree on the failure.
class OptimizerMemory::UpdateFromFiles {
 public:
  UpdateFromFiles(OptimizerMemory& memory, const StepInput& input, const Updated& updated)
      : memory_(memory), input_(input), updated_(updated) {}

  void take(const WalkStep& step) {
    switch (step.kind) {
      case WalkStep::Kind::fetch: return fetch(step);
      case WalkStep::Kind::update: return update(step);
      case WalkStep::Kind::settle: return settle(step);
    }
  }

 private:
  // What is in memory of a piece.
  struct Piece {
    std::vector<std::unique_ptr<PagePiece>> parts;  // by operand; null: that one is whole
    HostCopy gradient;                              // where the optimizer works for a device
  };

  std::size_t number_of(const WalkStep& step) const { return memory_.walked_[step.unit]; }
  std::span<Page* const> whole_pages(const WalkStep& step) const { return memory_.whole_pages_[number_of(step)]; }

  void fetch(const WalkStep& step) {
    const std::size_t number = number_of(step);
    if (step.is_first())
      for (Page* page : whole_pages(step)) page->fetch();
    Piece& piece = arriving_.emplace_back();
    for (const Operand& operand : memory_.operands_[number])
      piece.parts.push_back(operand.in_pieces ? std::make_unique<PagePiece>(*operand.page, step.piece) : nullptr);
    if (!memory_.offloads_) return;
    const Tensor gradient = memory_.operands_[number][kGradient].numbers.slice(0, step.piece.begin, step.piece.end);
    piece.gradient = HostCopy(gradient);
    memory_.offload_bytes_ += static_cast<std::int64_t>(gradient.bytes());
  }

  void update(const WalkStep& step) {
    if (step.is_first()) {
      has_whole_ = true;
      for (Page* page : whole_pages(step)) has_whole_ &= page->wait();
    }
    Piece piece = std::move(arriving_.front());
    arriving_.pop_front();
    bool is_there = has_whole_;
    for (const auto& part : piece.parts) is_there &= !part || part->wait();
    measure(number_of(step), piece);
    if (is_there) update_piece(step, piece);
    piece.gradient = {};
    if (step.is_last) updated_(number_of(step));
    write_behind(step, piece, is_there);
    leaving_.push_back(std::move(piece));
  }

  // Of an optimizer that measures, which has units whole. All ranks add their sums, whatever is there of them.
  void measure(std::size_t number, const Piece& piece) {
    TensorSums* const sums = memory_.unit_sums_[number];
    if (sums == nullptr) return;
    const auto of_unit = [](const std::vector<ParameterRange>& all, Span own) {
      return std::span(all).subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.count()));
    };
    const std::span ranges = of_unit(memory_.ranges_, memory_.unit_ranges_[number]);
    const Span parts = memory_.unit_parts_[number];
    if (memory_.offloads_)
      sums->measure(memory_.with_gradients(memory_.parts_, parts, number, piece.gradient.get()), ranges, input_);
    else sums->measure(of_unit(memory_.parts_, parts), ranges, input_);
  }

  void update_piece(const WalkStep& step, const Piece& piece) {
    memory_.optimizer_.update(ranges_of(step, piece), input_);
    UnitParameters& parameters = memory_.units_[number_of(step)]->parameters();
    parameters.own_values().mark_written();
    if (!memory_.offloads_) return;
    const Tensor values = numbers_of(step, piece, kValues, step.piece);
    parameters.send_values(step.piece, values);
    memory_.offload_bytes_ += static_cast<std::int64_t>(values.bytes());
  }

  // These elements of an operand, which are in the piece.
  Tensor numbers_of(const WalkStep& step, const Piece& piece, std::size_t operand, Span among) const {
    const Span here{among.begin - step.piece.begin, among.end - step.piece.begin};
    if (operand == kGradient && memory_.offloads_) return piece.gradient.get().slice(0, here.begin, here.end);
    if (piece.parts[operand]) return piece.parts[operand]->numbers().slice(0, here.begin, here.end);
    const Tensor& whole = memory_.operands_[number_of(step)][operand].numbers;
    return whole.defined() ? whole.slice(0, among.begin, among.end) : Tensor();
  }

  // What the optimizer updates of a piece.
  std::vector<ParameterRange> ranges_of(const WalkStep& step, const Piece& piece) const {
    const Span ranges = memory_.unit_ranges_[number_of(step)];
    const Tensor& values = memory_.operands_[number_of(step)][kValues].numbers;
    std::vector<ParameterRange> cut;
    for (std::int64_t r = ranges.begin; r < ranges.end; ++r) {
      const ParameterRange& range = memory_.ranges_[static_cast<std::size_t>(r)];
      const std::int64_t begin = range.parameter.offset() - values.offset();
      const Span among{std::max(begin, step.piece.begin), std::min(begin + range.parameter.numel(), step.piece.end)};
      if (among.begin >= among.end) continue;
      ParameterRange& part = cut.emplace_back(range);
      part.parameter = numbers_of(step, piece, kValues, among);
      part.master = numbers_of(step, piece, kMasters, among);
      part.gradient = numbers_of(step, piece, kGradient, among);
      for (std::size_t kind = 0; kind + kStates < piece.parts.size(); ++kind)
        part.state[kind] = numbers_of(step, piece, kStates + kind, among);
      part.first += among.begin - begin;
    }
    return cut;
  }

  void write_behind(const WalkStep& step, Piece& piece, bool is_there) {
    for (std::size_t operand = 0; operand < piece.parts.size(); ++operand) {
      std::unique_ptr<PagePiece>& part = piece.parts[operand];
      if (part && is_there && operand != kGradient) part->store();
      else part.reset();
    }
    if (!step.is_last) return;
    for (Page* page : whole_pages(step))
      if (has_whole_ && page != memory_.units_[number_of(step)]->gradient_page()) page->store();
      else page->drop();
  }

  void settle(const WalkStep& step) {
    for (const auto& part : leaving_.front().parts)
      if (part) part->wait();
    leaving_.pop_front();
    if (step.is_last)
      for (Page* page : whole_pages(step)) page->settle();
  }

  OptimizerMemory& memory_;
  const StepInput& input_;
  const Updated& updated_;
  std::deque<Piece> arriving_, leaving_;
  bool has_whole_ = true;  // what is whole of the unit that is updated
};

void OptimizerMemory::update_from_files(const Tensor& decided, const Updated& updated) {
  pager_->take_back();
  const HostCopy of_host = offloads_ ? HostCopy(decided) : HostCopy();
  const StepInput input{.step = offloads_ ? of_host.get() : decided, .shared = shared_};
  UpdateFromFiles walk(*this, input, updated);
  for (const WalkStep& step : walk_.steps) walk.take(step);
  optimizer_.advance(input);
}

}  // namespace keel
