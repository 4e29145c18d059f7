#pragma once
// What a sharded training step needs, by formulas alone: the memory of a rank and the bytes that it sends.
//
// Nothing is allocated and nobody is asked, so a plan for a thousand ranks takes one process moments. P: elements of a
// unit, rounded up to whole shards; N: ranks; s = P / N; M: backward passes of a step. Per unit, in elements:
//
//             parameters     gradients   optimizer    gathered in a step   reduced in a step
//   stage 0   P              P           P            -                    2 (P - s)
//   stage 1   P              P           s            P - s                P - s
//   stage 2   P              s           s            P - s                P - s
//   stage 3   s              s           s            2 M (P - s)          P - s
//
// With several micro-batches stages 2 and 3 have all whole gradients, P, until the last one. Where gradients are
// reduced after each backward pass they do not, and all stages send M (P - s) of gradients; stages 0 and 1 keep s more
// of them, and stage 0 gathers their sums, P - s.
// Of virtual ranks a rank has K = V / N: it has log2(K) P more of gradients, in fp32, in which gradients then travel,
// and K M is read for M.
//
// Stage 3 gathers M (P - s) where whole parameters stay between forward and backward (the root, which the forward pass
// never leaves, always), and is stage 2 for units that persist. Frozen units have no gradient and no optimizer state,
// and are gathered in stage 3 alone; M (P - s) of each where all units of a model are frozen, as it only answers. Where
// shards are spread over groups of G ranks, read G for N; each reduction then sends about 2 s (1 - G / N) more, across
// the groups. (Rajbhandari et al. 2020, ZeRO, section 5; the bytes are those of a ring.) Buffers (keel/nn/buffer.h) are
// whole in every stage, in fp32; rank 0 saves them.
//
// An optimizer that transforms matrices (keel/dist/parallel/matrix_updates.h) sends pieces of what a rank owns to the
// owners of matrices, and results back: about 2 (m - m / N) elements of the m = Pm / N that a rank owns of all Pm
// elements of matrices. In stage 0 it gathers results, (N - 1) times the most that an owner has of them. Where everyone
// transforms what it has a part of, each piece goes to all ranks with a part of the same matrix, and nothing in stage
// 0. Where something lies in files, all that is of one batch of units after the other (MatrixDeal::in_batches()).

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/parallel/planned_collective.h"
#include "keel/dist/parallel/sharded.h"

namespace keel {

// Bytes of one rank.
struct MemoryPlan {
  // Kept from step to step.
  std::int64_t parameter = 0, gradient = 0, optimizer = 0;
  std::int64_t undelivered = 0;   // the part of `gradient` that compression keeps (keel/dist/parallel/compression.h)
  std::int64_t partial_sums = 0;  // the part that sums over the rank's virtual ranks take
  // Peaks of what is there for a while: whole parameters; whole gradients; and both, with the memory that reductions
  // write to, or the matrices of an optimizer (without what a transformation takes meanwhile). The last is the peak of
  // Purpose::bucket.
  std::int64_t gathered = 0, whole_gradients = 0, buckets = 0;
  // What a device's rank keeps in the processor's memory: weights and gradients that lie there, and an offloaded
  // optimizer's masters, state, and the weights that it updates.
  std::int64_t host = 0;
  // The peak of what is there for a while, of Purpose::bucket: numbers between the device and files, gradients that
  // have come to the optimizer, what an update has of files, and the matrices of an optimizer.
  std::int64_t host_buckets = 0;
  std::int64_t file = 0;  // what lies in files (keel/dist/parallel/page.h)
  // What one save writes, and an asynchronous one has a copy of in the processor's memory
  // (keel/dist/checkpoint/snapshot.h).
  std::int64_t checkpoint = 0;
  // What copies of the newest state take of the memory of the rank's host (keel/dist/checkpoint/memory_copies.h).
  std::int64_t copies = 0;

  std::int64_t kept() const { return parameter + gradient + optimizer; }
};

// Bytes that one rank sends in a step after the first, where all ranks share a node. With an optimizer that needs a
// closure, that is for each evaluation.
struct TrafficPlan {
  std::int64_t gathers = 0;     // of parameters
  std::int64_t reductions = 0;  // of gradients
  std::int64_t matrices = 0;    // to those that transform them, and back
  // Norm, flag, tokens, what buffers have observed, and what the optimizer measures, without the dot products of one
  // that needs a closure. Not in sent().
  std::int64_t control = 0;
  std::int64_t offload = 0;  // to the processor and back; not in sent()
  // From files and to them; not in sent().
  std::int64_t file_read = 0, file_written = 0;
  // What a strategy of communication sends in so many steps; not in sent(), which is of a step inside a group.
  std::int64_t strategy = 0, strategy_steps = 1;

  std::int64_t sent() const { return gathers + reductions + matrices; }
};

struct RankPlan {
  MemoryPlan memory;
  std::int64_t owned = 0;        // weights in Sharded::weights(), without padding
  bool saves = false;            // whether the rank's parts are in checkpoints; others may hold the same
  bool updates_on_host = false;  // the optimizer works in the processor's memory, for a device
  TrafficPlan traffic;
  std::int64_t matrix_operations = 0;          // of an optimizer that transforms matrices, in a step
  std::vector<PlannedCollective> collectives;  // of parameters and gradients
};

// The sum over what a rank needs and sends for several models. Peaks of what is there for a while may be at different
// times, and their sum is no less than that of all.
MemoryPlan& operator+=(MemoryPlan& sum, const MemoryPlan& more);
// Strategies whose windows differ send what they do in as many steps as are whole windows of both.
TrafficPlan& operator+=(TrafficPlan& sum, const TrafficPlan& more);
RankPlan& operator+=(RankPlan& sum, const RankPlan& more);

// What a plan needs to know beside the engine's options.
struct PlanSite {
  BufferCount buffers = {};    // of the model, by count_buffers()
  CollectiveRoute route = {};  // of the communicator
  // The model computes on a device, as it does where the options leave something to the processor; what lies in files
  // passes through the processor's memory.
  bool on_device = false;
  // Of the step whose traffic between ranks this is, where it has fewer than options.micro_batches; 0: as many.
  std::int64_t micro_batches = 0;
};

// As deal_matrices().
std::vector<MatrixDeal> plan_matrices(std::span<const FlatBuffer> layout, const Optimizer& optimizer,
                                      const ShardedOptions& options, int ranks);
// The collectives of such a batch, of one of these ranks; none where it is alone.
std::vector<PlannedCollective> matrix_collectives(const MatrixDeal& deal, int rank);

// The bytes of the all-gather by which ranks agree at the end of a step.
std::int64_t control_bytes(int ranks);

// Where a rank stands. Throws the Errors of plan_rank().
RankPlace check_planned(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                        int ranks, int rank);

// `layout` is lay_out(model, shard_ranks(...), optimizer.requirements().block). The plan assumes what a transformer
// does: inside the root's forward pass the units follow in the order of the layout, backward takes them in reverse, and
// it reads the parameters of each. A model whose first unit needs no gradient of its input may gather that unit once
// less where nothing is prefetched; where activations are recomputed, no last unit is kept. The optimizer counts as
// offloaded where the options say so, whatever the device. Where an engine tries settings, memory is that of the
// largest one. Throws an Error where a gradient is kept as rows: memory and bytes then follow from the data.
RankPlan plan_rank(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank, const PlanSite& site = {});

}  // namespace keel
