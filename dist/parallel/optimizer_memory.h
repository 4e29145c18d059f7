#pragma once
// What the optimizer has on one rank: its state, and the ranges of parameters that it updates in a step, where they are
// or in the processor's memory.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "keel/dist/parallel/matrix_updates.h"
#include "keel/dist/parallel/shard_unit.h"
#include "keel/dist/parallel/update_walk.h"
#include "keel/nn/tensor_parts.h"
#include "keel/optim/optimizer.h"

namespace keel {

class StateSlots;  // keel/dist/parallel/state_slots.h

class OptimizerMemory {
 public:
  using Units = std::vector<std::unique_ptr<ShardUnit>>;
  // Told of a unit that is trained whose values are new, on this rank and on the device.
  using Updated = std::function<void(std::size_t unit)>;
  // `deciders`: the ranks that sums over whole parameters are of; those with all shards are the first. Units, optimizer
  // and communicator must outlive it.
  OptimizerMemory(const Units& units, const Optimizer& optimizer, Communicator& deciders, const EngineSite& site);

  // Updates what this rank owns by the gradients of its units. `state`: a step that decide_step() has decided. The
  // device has the new values afterwards; the other ranks do not. `updated` may send them, one unit after the other.
  void update(const Tensor& state, const Updated& updated);
  // Of an optimizer whose weights are averages: writes what the next gradient is taken at to the values of a unit.
  void fill_values(std::size_t unit) const;
  // Forgets the rows of a step, where gradients are kept as rows.
  void forget_rows();

  const Context& context() const { return context_; }
  DType dtype() const { return dtype_; }  // of states
  std::span<const ParameterRange> ranges() const { return ranges_; }
  // By unit, and then by the optimizer's state_names().
  std::span<const std::vector<Tensor>> states() const { return states_; }
  const Tensor& shared() const { return shared_; }  // the optimizer's shared number, the same on every rank
  // Views of all of it, as "<state>.<parameter>" and "shared.<name>".
  TensorParts parts() const;

  // Bytes that were copied between the device and the processor.
  std::int64_t offload_bytes() const { return offload_bytes_; }
  void count_offload(std::int64_t bytes) { offload_bytes_ += bytes; }

 private:
  class WalkOverFiles;
  // What an update of a unit reads or writes of the elements that this rank updates, and the page where it lies; null:
  // that is in memory. The states follow from kStates on: those that all elements have, and then those in slots; last
  // comes a device's page of weights that the processor updates.
  static constexpr std::size_t kValues = 0, kMasters = 1, kGradient = 2, kStates = 3;
  struct Operand {
    Tensor numbers = {};
    WalkUses uses = {};
    Page* page = nullptr;
    bool in_pieces = false;  // a walk reads and writes the page a piece at a time
    bool from_host = false;  // of a device's page, whose numbers the processor takes from where they lie

    // Whether a walk has the page whole, from the first piece of its unit to the last.
    bool comes_whole(WalkOf walk) const {
      return page != nullptr && uses.*walk != PageUse::none && !in_pieces && (!from_host || page->is_in_file());
    }
  };
  // The units that are walked over, and in which order.
  struct Walk {
    WalkOf of;
    std::vector<std::size_t> units = {};
    UpdateWalk order = {};
  };
  // Units that are updated before the next ones, so that the matrices of these alone are in memory. One has all units,
  // unless an optimizer transforms matrices, and something lies in files.
  struct Batch {
    Span units;
    std::optional<MatrixUpdates> matrices = {};  // for an optimizer that transforms them
    Walk prepare{&WalkUses::prepare}, update{&WalkUses::update};
  };

  void make_sums(Communicator& deciders);
  void make_batches();
  void make_operands(std::size_t unit, const StateSlots& slots);
  void make_ranges(std::size_t unit, std::int64_t before, std::size_t parameter, const StateSlots& slots);
  std::vector<Tensor> make_parameter_state(std::size_t unit, std::size_t segment, const ParameterGroup& group,
                                           const StateSlots& slots);
  ParameterRange range_of(std::size_t unit, std::int64_t begin, std::int64_t end) const;
  void take_rows();
  void update_in_place(const Tensor& state);
  void update_on_processor(const Tensor& state);
  void update_from_files(const Tensor& state, const Updated& updated);
  HostCopy bring_gradient(const Tensor& gradient);  // to the processor
  void make_walk(Walk& walk, Span units) const;
  // Those of a unit.
  static std::span<const ParameterRange> ranges_in(const std::vector<ParameterRange>& all, Span of_unit) {
    return std::span(all).subspan(static_cast<std::size_t>(of_unit.begin), static_cast<std::size_t>(of_unit.count()));
  }
  std::vector<ParameterRange> with_gradients(const std::vector<ParameterRange>& ranges, Span of_unit, std::size_t unit,
                                             const Tensor& gradient) const;

  const Units& units_;
  const Optimizer& optimizer_;
  EngineSite site_;
  Context context_;
  bool offloads_;
  DType dtype_;
  std::vector<std::vector<Tensor>> states_;
  TensorParts parameter_state_;  // the states that the optimizer keeps for single parameters
  std::vector<ParameterRange> ranges_;
  std::vector<Span> unit_ranges_;  // of ranges_, by unit
  // For an optimizer that measures: the parts of this rank's shards, and the sums over whole parameters: of all units
  // at once, or of one after the other where they come from files.
  std::vector<ParameterRange> parts_;
  std::vector<Span> unit_parts_;  // of parts_, by unit
  std::vector<std::unique_ptr<TensorSums>> sums_;
  std::vector<TensorSums*> unit_sums_;  // by unit; null: nothing is measured
  std::vector<Batch> batches_;
  Tensor shared_;
  Pager* pager_;                                // null: nothing lies in files
  std::vector<std::vector<Operand>> operands_;  // by unit
  std::vector<std::unique_ptr<Page>> state_pages_;
  std::int64_t offload_bytes_ = 0;
};

}  // namespace keel
