#pragma once
// What is sharded, and how gradients travel: the choices behind data parallelism and ZeRO.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "keel/runtime/dtype.h"

namespace keel {

// Which of a unit's memory is sharded: there a rank keeps its own shard only. Rajbhandari et al. 2020 (ZeRO).
struct ShardingStage {
  int number;
  std::string_view name;
  bool optimizer, gradients, parameters;
};
inline constexpr ShardingStage kShardingStages[] = {
    {0, "data parallel", false, false, false},
    {1, "ZeRO-1", true, false, false},
    {2, "ZeRO-2", true, true, false},
    {3, "ZeRO-3", true, true, true},
};

// When the gradients of several micro-batches are summed over the ranks. The two add in another order, and round at
// other places; each gives the same bits in all stages.
enum class Accumulation : unsigned char {
  deferred,       // once a step: a rank adds up its micro-batches first, and keeps whole gradients until the last one
  each_backward,  // after every micro-batch, into a shard: sends more, and stages 2 and 3 keep no whole gradients
};

inline constexpr std::string_view kAccumulations[] = {"deferred", "each_backward"};
constexpr std::string_view name_of(Accumulation accumulation) {
  return kAccumulations[static_cast<std::size_t>(accumulation)];
}

// What weights are gathered as. Codes are blocks of whole numbers and a scale (keel/kernels/codec.h). Every rank then
// computes with the weights that such a code gives, in every stage, its own among them; the optimizer keeps the exact
// ones. (Wang et al. 2023, ZeRO++: qwZ.)
enum class WeightCode : unsigned char { exact, int8, int4 };

inline constexpr std::string_view kWeightCodes[] = {"exact", "int8", "int4"};

// Who transforms the matrices of an optimizer that needs whole ones (keel/dist/parallel/matrix_updates.h). Either gives
// the same bits.
enum class MatrixWork : unsigned char {
  dealt,     // each matrix one rank, which sends the result back
  everyone,  // every rank all those that it has a part of, so that nothing is sent back
};

inline constexpr std::string_view kMatrixWorks[] = {"dealt", "everyone"};
constexpr std::string_view name_of(MatrixWork work) { return kMatrixWorks[static_cast<std::size_t>(work)]; }

// Where a kind of numbers lies between its uses: in the memory of the device that computes, in that of the processor,
// or in a file. On a processor the first two are the same.
enum class Residence : unsigned char { device, host, file };

inline constexpr std::string_view kResidences[] = {"device", "host", "file"};
constexpr std::string_view name_of(Residence residence) { return kResidences[static_cast<std::size_t>(residence)]; }

struct ShardingOptions {
  // Of `bucket`: an engine of several ranks measures in its first steps which sizes of buckets, prefetching and
  // algorithm of the collectives are quickest here (keel/dist/parallel/setting_tuner.h).
  static constexpr std::int64_t kAutomatic = 0;

  int stage = 0;
  // Stages 0 and 1: a bucket is units whose gradients are sent together; so many bytes close it. The first bucket is
  // small, so that sending begins early.
  std::int64_t first_bucket = std::int64_t{1} << 20, bucket = std::int64_t{25} << 20;
  bool overlap = true;  // send while backward goes on; otherwise all at its end
  Accumulation accumulation = Accumulation::deferred;
  bool reshard_after_forward = true;       // stage 3: whole parameters go between forward and backward
  bool keep_last_unit = false;             // stage 3: the unit that backward begins with stays whole in between
  int prefetch = 1;                        // stage 3: units that are gathered ahead
  std::int64_t persistence_threshold = 0;  // stage 3: units with fewer elements stay whole
  bool strict = false;                     // a parameter without a gradient is an Error; otherwise its gradient is zero
  // Hybrid sharding: shards are spread over groups of so many neighbouring ranks, and each group has all shards; 0: one
  // group of all ranks. Gradients are summed inside the groups, rounded, and then summed across groups.
  int group = 0;
  // Neighbouring ranks that are close to each other, as those of a node; divides the ranks of a group. 0: there are no
  // subgroups. Secondary shards and the compression qgz send inside of them.
  int subgroup = 0;
  // Stage 3: once a unit was gathered, each subgroup keeps it in shards of its own, from which it is gathered until the
  // weights change. (ZeRO++: hpZ.)
  bool secondary = false;
  WeightCode weight_code = WeightCode::exact;
  // Rows are dealt to so many virtual ranks, and a rank computes its consecutive ones in turn. Sums are taken along one
  // balanced binary tree over all of them, so bits do not depend on the number of ranks. A power of two that the ranks
  // divide; 0: each rank is its own.
  int virtual_ranks = 0;
  MatrixWork matrices = MatrixWork::dealt;
  // Of masters and optimizer state. Elsewhere than on the device the processor updates.
  Residence offload_optimizer = Residence::device;
  Residence offload_parameters = Residence::device;  // of what a rank keeps of them between uses
  Residence offload_gradients = Residence::device;   // of what a rank keeps of them between passes and steps
  std::string offload_folder = {};                   // of the files
  // Bytes that an update has in memory at a time of what files keep.
  std::int64_t offload_budget = std::int64_t{1} << 30;
  int offload_threads = 4;  // that read and write files

  bool operator==(const ShardingOptions&) const = default;
  bool tunes() const { return bucket == kAutomatic; }
  // Of `ranks` ranks: the parts that a step's rows are dealt in, and the virtual ranks that each computes.
  int dealt_to(int ranks) const { return virtual_ranks > 0 ? virtual_ranks : ranks; }
  int of_each(int ranks) const { return dealt_to(ranks) / ranks; }
  // Whether a step of so many micro-batches sums gradients over the ranks after each of them.
  bool reduces_each(std::int64_t micro_batches) const {
    return accumulation == Accumulation::each_backward && micro_batches > 1;
  }
  bool offloads_optimizer() const { return offload_optimizer != Residence::device; }
  bool uses_files() const {
    return offload_optimizer == Residence::file || offload_parameters == Residence::file ||
           offload_gradients == Residence::file;
  }
  // Whether weights, gradients or states come and go as pages (keel/dist/parallel/page.h).
  bool pages() const {
    return uses_files() || offload_parameters != Residence::device || offload_gradients != Residence::device;
  }
  // The same where the device is the processor, whose memory is the host's.
  ShardingOptions on_processor() const {
    ShardingOptions same = *this;
    for (Residence ShardingOptions::*const each :
         {&ShardingOptions::offload_optimizer, &ShardingOptions::offload_parameters,
          &ShardingOptions::offload_gradients})
      if (same.*each == Residence::host) same.*each = Residence::device;
    return same;
  }
};

}  // namespace keel
