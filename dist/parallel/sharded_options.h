#pragma once
// All that an engine is made with, besides model, communicator and optimizer.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "keel/dist/parallel/compression.h"
#include "keel/dist/parallel/setting_tuner.h"
#include "keel/dist/parallel/sharding.h"
#include "keel/dist/strategies/communication_strategy.h"
#include "keel/kernels/step_state.h"
#include "keel/nn/flat_buffer.h"
#include "keel/optim/optimizer.h"
#include "keel/runtime/scratch_file.h"

namespace keel {

class SurvivingGroups;  // keel/dist/strategies/surviving_groups.h

enum class ClipBy : unsigned char { norm, value };
inline constexpr std::string_view kClipBys[] = {"norm", "value"};

struct ShardedOptions {
  PrecisionPolicy policy = {};
  std::optional<DType> wire = {};  // of gradients between ranks; the parameters' dtype unless given
  Compression compression = {};    // of gradients between ranks
  std::uint64_t seed = 1;          // of the initial weights
  std::int64_t micro_batches = 1;  // calls of backward() between two steps, of each virtual rank
  // Longest mean gradient, by its 2-norm, or largest element of it; 0: not clipped.
  double clip = 0;
  ClipBy clip_by = ClipBy::norm;
  GroupRule groups = decay_matrices_only;
  ShardingOptions sharding = {};
  TuningOptions tuning = {};  // where sharding.bucket is kAutomatic
  // What groups of ranks tell each other, in place of their gradients' sums; empty: those sums.
  StrategyMaker strategy = {};
  // Where groups go on when others are lost: those of the engine's communicator. Outlives the engine; null: all end.
  SurvivingGroups* survivors = nullptr;
  LossScaling scaling = {};
  double loss_scale = 1;  // of the first step
  // The number of the first unit, by which its collectives are told from others. Engines that share a communicator have
  // numbers of their own, so that ranks which ask for those of different engines notice.
  int first_subject = 1;
  // Makes the file of what lies in files; empty: make_scratch_file().
  std::function<std::unique_ptr<ScratchFile>(const std::string& folder)> scratch_file = {};
  std::string name = {};  // of the model, where a run trains several: in messages and checkpoints

  // The dtype in which gradients travel.
  DType wire_dtype() const {
    if (sharding.virtual_ranks > 0) return partial_sum_dtype();
    return compression.kind().wire.value_or(wire.value_or(policy.parameter));
  }
  // Of sums over some of the virtual ranks.
  DType partial_sum_dtype() const { return policy.master_dtype(); }
};

}  // namespace keel
