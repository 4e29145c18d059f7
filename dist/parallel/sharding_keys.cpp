// The options of ShardingOptions.

#include "keel/dist/parallel/engine_keys.h"

namespace keel {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

constexpr OptionKey<ShardingOptions> kShardingKeys[] = {
    {.key = "bucket",
     .member = &ShardingOptions::bucket,
     .unit = kMebibyte,
     .low = 0,
     .low_open = true,
     .automatic = ShardingOptions::kAutomatic,
     .same_numbers = true,
     .help =
         "MiB of gradients that the ranks sum at a time, under strategies ddp and zero1; auto: the first steps try a "
         "few sizes of it, of sharding.prefetch and, where sharding.algorithm adds by rank in one sum, all that do, "
         "and the quickest stay. None changes a bit.",
     .known_as = "bucket_cap_mb|bucket_size"},
    {.key = "first_bucket",
     .member = &ShardingOptions::first_bucket,
     .unit = kMebibyte,
     .low = 0,
     .low_open = true,
     .same_numbers = true,
     .help = "MiB of the first bucket, small so that sending begins early."},
    {.key = "overlap",
     .member = &ShardingOptions::overlap,
     .same_numbers = true,
     .help = "Sum gradients while backward goes on; false: after it.",
     .known_as = "overlap_comm"},
    {.key = "accumulation",
     .member = &ShardingOptions::accumulation,
     .same_numbers = true,
     .help = "When gradients of several micro-batches are summed over the ranks; deferred: once a step; each_backward: "
             "after every micro-batch, so that under zero2 and zero3 no rank keeps whole gradients, which sends more. "
             "Either gives the same bits under every strategy."},
    {.key = "reshard_after_forward",
     .member = &ShardingOptions::reshard_after_forward,
     .same_numbers = true,
     .help = "Under zero3: give whole weights back between forward and backward; false: send less, need more memory."},
    {.key = "keep_last_unit",
     .member = &ShardingOptions::keep_last_unit,
     .same_numbers = true,
     .help = "Under zero3: the last block, with which backward begins, stays whole in between. Not where activations "
             "are recomputed."},
    {.key = "prefetch",
     .member = &ShardingOptions::prefetch,
     .low = 0,
     .high = 64,
     .same_numbers = true,
     .help = "Under zero3: blocks whose weights are gathered ahead of their use."},
    {.key = "persistence_threshold",
     .member = &ShardingOptions::persistence_threshold,
     .low = 0,
     .same_numbers = true,
     .help = "Under zero3: blocks with fewer weights stay whole on every rank.",
     .known_as = "stage3_param_persistence_threshold"},
    {.key = "group",
     .member = &ShardingOptions::group,
     .low = 0,
     .high = 1048576,
     .help = "Ranks that share one copy of what the strategy shards, neighbours by rank; each group has its own copy. "
             "Usually the ranks of a node; 0: all ranks.",
     .known_as = "hybrid_shard"},
    {.key = "subgroup",
     .member = &ShardingOptions::subgroup,
     .low = 0,
     .high = 1048576,
     .help = "Neighbouring ranks that are close to each other, as those of a node: sharding.secondary and the "
             "compression qgz send inside of them; 0: none."},
    {.key = "secondary",
     .member = &ShardingOptions::secondary,
     .same_numbers = true,
     .help = "Under zero3: keep a block that was gathered in shards of each sharding.subgroup, too, and gather it from "
             "there until the weights change; sends less between nodes, needs more memory. Published as hpZ."},
    {.key = "weight_code",
     .member = &ShardingOptions::weight_code,
     .help = "What weights are gathered as, and computed with, under every strategy; int8, int4: blocks of 256 whole "
             "numbers with a scale. The optimizer keeps the exact ones. Published as qwZ."},
    {.key = "virtual_ranks",
     .member = &ShardingOptions::virtual_ranks,
     .low = 0,
     .high = 1048576,
     .help =
         "Bits that do not depend on the number of ranks: rows are dealt to so many virtual ranks, each rank computes "
         "its share of them in turn, and gradients are summed in fp32 along one binary tree. A power of two, which "
         "the ranks, another one, must divide; 0: off. Needs log2(virtual ranks of a rank) more fp32 gradients."},
    {.key = "matrices",
     .member = &ShardingOptions::matrices,
     .same_numbers = true,
     .help = "Who makes the matrices of Muon orthogonal; dealt: each matrix one rank, which sends the result to the "
             "others; everyone: every rank those that it has a part of, so that nothing is sent back. `keel plan` says "
             "what each costs. The bits are the same."},
    {.key = "strict",
     .member = &ShardingOptions::strict,
     .same_numbers = true,
     .help = "A weight that the loss does not depend on is an error; false: its gradient is zero."},
    {.key = "offload_optimizer",
     .member = &ShardingOptions::offload_optimizer,
     .help = "Where the optimizer's state and fp32 weights lie between updates; host: in the processor's memory, which "
             "updates, for GPUs; file: in a file in sharding.offload_folder. true is host."},
    {.key = "offload_parameters",
     .member = &ShardingOptions::offload_parameters,
     .same_numbers = true,
     .help = "Where the weights that a rank keeps lie between uses: with zero3 on several ranks its shard, else all of "
             "them. They are read a block ahead."},
    {.key = "offload_gradients",
     .member = &ShardingOptions::offload_gradients,
     .same_numbers = true,
     .help =
         "Where gradients lie between backward passes and until the update; they leave behind backward; host: in the "
         "processor's memory, for GPUs."},
    {.key = "offload_folder",
     .member = &ShardingOptions::offload_folder,
     .same_numbers = true,
     .help = "Folder of the files of what lies in files, on a fast disk. They have no names, and go away with the "
             "program; none: the run's folder."},
    {.key = "offload_budget",
     .member = &ShardingOptions::offload_budget,
     .unit = kMebibyte,
     .low = 0,
     .low_open = true,
     .same_numbers = true,
     .help = "MiB that an update has in memory at a time of what files keep: pieces of blocks are read ahead and "
             "written behind as far as they fit. Muon's matrices may take as much again."},
    {.key = "offload_threads",
     .member = &ShardingOptions::offload_threads,
     .low = 1,
     .high = 64,
     .same_numbers = true,
     .help = "Threads of a rank that read and write files."},
};

}  // namespace

std::span<const OptionKey<ShardingOptions>> sharding_keys() { return kShardingKeys; }

}  // namespace keel
